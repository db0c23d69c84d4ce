-- What the API sends most often, in the driver's form.

-- name: leave_audit
-- Adds entries, and wakes schedulers at the commit where that is wanted.
select leave_audit(%(tenant)s, %(actor)s, %(request_id)s, %(address)s, %(entries)s, %(wake)s)

-- name: insert_jobs
-- Inserts new jobs with their first versions and tags, in the order of their names, so that two such
-- statements cannot wait for each other in a circle; answers those whose names were free, and if `most`
-- is more than 0, how many other active jobs of the tenant waited for the same instant, counted up to it.
with given as (
  select * from json_to_recordset(%(jobs)s::json) as g (
    id uuid, name text, partition smallint, state text, next_run_at timestamptz,
    last_slot_at timestamptz, plan jsonb, paused jsonb, definition jsonb, defined_at timestamptz,
    tags json, expect float8
  )
), made as (
  insert into jobs (id, tenant_id, name, partition, state, next_run_at, last_slot_at, plan, paused,
    expect_success_every, success_due_at)
  select id, %(tenant)s::uuid, name, partition, state, next_run_at, last_slot_at, plan, paused,
    make_interval(secs => expect), now() + make_interval(secs => expect)
  from given
  order by name collate "C"
  on conflict (tenant_id, name) where state <> 'deleted' do nothing
  returning id
), versions as (
  insert into job_versions (job_id, version, tenant_id, definition, created_at, created_by)
  select id, 1, %(tenant)s::uuid, definition, defined_at, %(actor)s::text
  from given join made using (id)
), tags as (
  insert into job_tags (job_id, tenant_id, key, value)
  select id, %(tenant)s::uuid, t.key, t.value
  from given join made using (id) cross join lateral json_each_text(tags) t
)
select id, case when %(most)s::int > 0 then count_waiting(next_run_at, %(most)s::int) end
from made join given using (id)
