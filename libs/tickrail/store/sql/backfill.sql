-- What the owner of partitions does for backfills. Every write is made behind the fence.

-- name: due
-- Running backfills whose turn it is, the rows of their jobs locked: jobs come before backfills.
select b.id, j.id, j.tenant_id, j.partition, j.version, coalesce(j.next_run_at, now()),
       j.last_slot_at, j.launched, j.plan::text, j.state,
       case j.state when 'active' then j.next_run_at end
from backfills b
join jobs j on j.id = b.job_id
where b.partition = any(%(partitions)b::int2[]) and b.state = 'running' and b.next_at <= now()
  and exists (select from tenants t where t.id = b.tenant_id and t.state = 'active')
order by b.next_at
limit %(limit)s
for update of j skip locked

-- name: hold
-- These backfills as they are now, locked.
select b.id, b.from_at, b.until_at, case when b.newest_first then 'newest' else 'oldest' end,
       b.existing, b.max_count, b.max_open, b.per_minute, b.total, b.next_at, b.cursor_at,
       b.launched, b.left_alone
from backfills b
where b.id = any(%(ids)b::uuid[]) and b.state = 'running' and b.next_at <= now()
order by b.next_at, b.id
for update

-- name: open_by_origin
-- Open launches of jobs by origin.
select job_id, origin, count(*)
from launches
where job_id = any(%(jobs)b::uuid[]) and phase < 3
group by job_id, origin

-- name: launched_slots
-- Those of these slots that have a launch, by their schedule or by a backfill.
select m.job_id, m.at
from unnest(%(job_id)b::uuid[], %(at)b::timestamptz[]) as m (job_id, at)
where exists (
  select from launches l
  where l.job_id = m.job_id and l.scheduled_at = m.at
    and (l.origin = 'schedule' or l.origin ^@ 'backfill:'))

-- name: insert_launches
-- The records of slots that are launched; one that is there already stays as it is.
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, max_attempts, rerun, visibility, due_at, start_before, epoch, payload,
  concurrency_key, concurrency_limit)
select m.id, m.scheduled_at, b.tenant_id, b.job_id, m.job_version, b.partition, m.queue, m.priority,
  'backfill:' || b.id, 'due', 1, m.max_attempts, m.rerun, m.visibility, m.due_at, m.start_before,
  m.epoch, case when b.has_payload then coalesce(b.payload, 'null') end,
  m.concurrency_key, m.concurrency_limit
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(backfill)b::uuid[],
  %(job_version)b::int4[], %(queue)s::text[], %(priority)b::int2[], %(max_attempts)b::int4[],
  %(rerun)s::bool[], %(visibility)b::float8[], %(due_at)b::timestamptz[],
  %(start_before)b::timestamptz[], %(epoch)b::int8[], %(concurrency_key)s::text[],
  %(concurrency_limit)b::int4[])
  as m (id, scheduled_at, backfill, job_version, queue, priority, max_attempts, rerun, visibility,
        due_at, start_before, epoch, concurrency_key, concurrency_limit)
join backfills b on b.id = m.backfill
on conflict (scheduled_at, id) do nothing
returning id

-- name: move
-- How far each backfill is after a pass.
update backfills b
set state = m.state, total = m.total, next_at = m.next_at, cursor_at = m.cursor_at,
    launched = b.launched + m.launched, left_alone = b.left_alone + m.left_alone,
    updated_at = now(), finished_at = case m.state when 'running' then null else now() end
from unnest(%(id)b::uuid[], %(state)s::text[], %(total)b::int8[], %(next_at)b::timestamptz[],
  %(cursor_at)b::timestamptz[], %(launched)b::int8[], %(left_alone)b::int8[])
  as m (id, state, total, next_at, cursor_at, launched, left_alone)
where b.id = m.id
