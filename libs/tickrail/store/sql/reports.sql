-- What workers tell of themselves and of their runs.

-- name: write_logs
-- The end of what runs printed. Not where the launch's day is dropped: its logs' day is, too.
insert into launch_logs (launch_id, scheduled_at, tenant_id, attempt, body, size, ended, updated_at)
select m.id, m.scheduled_at, m.tenant_id, m.attempt, m.body, m.size, m.ended, clock_timestamp()
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(tenant_id)b::uuid[],
  %(attempt)b::int4[], %(body)s::text[], %(size)b::int8[], %(ended)s::bool[])
  as m (id, scheduled_at, tenant_id, attempt, body, size, ended)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
on conflict (scheduled_at, launch_id, attempt) do update
set body = excluded.body, size = excluded.size, ended = excluded.ended,
    updated_at = excluded.updated_at

-- name: write_progress
-- How far runs are: the launch's while it has their claim, also just after its end.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(claim)b::int8[],
    %(progress)s::text[]) as m (id, scheduled_at, claim, progress)
), l as (
  select t.scheduled_at, t.id, m.progress
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.claim = m.claim
  order by t.id
  for no key update of t
)
update launches t set progress = l.progress::jsonb
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: present
-- A worker is there.
insert into workers (id, name, queues, kinds, tasks, version, concurrency, running, draining,
  seen_at)
values (%(id)s, %(name)s, %(queues)s, %(kinds)s, %(tasks)s, %(version)s, %(concurrency)s,
  %(running)s, %(draining)s, clock_timestamp())
on conflict (id) do update
set running = excluded.running, draining = excluded.draining, seen_at = excluded.seen_at

-- name: forget
-- Workers not heard of; a row that somebody writes at this moment is passed over.
delete from workers where id in (
  select id from workers where seen_at < clock_timestamp() - %(after)s::interval
  order by id for update skip locked)

-- name: left
-- A worker is gone.
delete from workers where id = %(id)s
