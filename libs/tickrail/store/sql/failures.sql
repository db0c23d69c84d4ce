-- What becomes of jobs whose launches end dead or abandoned, in the transaction that ends them.

-- name: concerned
-- Which of these launches are of jobs that want something then, and whether the job may pause itself.
select t.id, t.job_id, v.definition #>> '{on_failures,pause_after}' is not null
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
join jobs j on j.id = t.job_id
join job_versions v on v.job_id = j.id and v.version = j.version
where jsonb_typeof(v.definition -> 'on_failures') = 'object'

-- name: hold_jobs
-- Holds jobs that may pause themselves, so that of ends at the same time each sees those before it.
select id from jobs where id = any(%(jobs)b::uuid[]) order by id for no key update

-- name: hold_free_jobs
-- As hold_jobs, those left out that somebody else holds: an owner waits for nobody.
select id from jobs where id = any(%(jobs)b::uuid[]) order by id for no key update skip locked

-- name: failed
-- Launches that ended so, as they are told of.
select t.id, t.scheduled_at, t.tenant_id, t.job_id, j.name, t.origin, t.state, t.attempt, t.failures,
       t.finished_at, t.result, v.definition -> 'on_failures'
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
join jobs j on j.id = t.job_id
join job_versions v on v.job_id = j.id and v.version = j.version
where t.state in ('dead', 'abandoned') and jsonb_typeof(v.definition -> 'on_failures') = 'object'
order by t.tenant_id, t.job_id, t.scheduled_at, t.id

-- name: pause_failing
-- Pauses the jobs of these launches whose latest slots, so many as they say, ended dead or abandoned.
-- Expired and cancelled ones are passed over, and what ended before the job was last changed or
-- resumed does not count. Their rows are held.
with m as (
  select * from unnest(%(jobs)b::uuid[], %(launches)b::uuid[]) as m (id, launch)
), c as (
  select j.id, m.launch, (v.definition #>> '{on_failures,pause_after}')::int as most,
         v.definition -> 'on_failures' as on_failures,
         greatest(j.failures_from,
                  case when v.version > 1 then v.created_at end, '-infinity') as since
  from m
  join jobs j on j.id = m.id and j.state = 'active'
  join job_versions v on v.job_id = j.id and v.version = j.version
  where v.definition #>> '{on_failures,pause_after}' is not null
)
update jobs j
set state = 'paused', resume_at = null, updated_at = now(),
    paused = jsonb_build_object('by', %(by)s::text,
      'at', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
      'reason', %(why)s::text || c.most, 'until', null, 'launch', c.launch)
from c
where j.id = c.id and (
  select count(*) = c.most and bool_and(x.state <> 'succeeded')
  from (
    select l.state from (
      select state, finished_at, scheduled_at from launches
      where job_id = c.id and phase = 3
      order by scheduled_at desc
      limit %(look)s
    ) l
    where l.state in ('succeeded', 'dead', 'abandoned') and l.finished_at > c.since
    order by l.scheduled_at desc
    limit c.most
  ) x)
returning j.id, j.tenant_id, j.name, j.paused, c.on_failures

-- name: audit_pause
-- Who paused jobs that paused themselves, and why.
insert into audit_log (id, tenant_id, actor, action, subject, after)
select * from unnest(%(id)b::uuid[], %(tenant)b::uuid[], %(actor)s::text[], %(action)s::text[],
  %(subject)s::text[], %(after)s::jsonb[])
