-- What the API does to many launches at once. Parameters are SQLAlchemy's (`:name`).

-- name: make_days
-- Makes the day partitions that are not there yet.
select make_day(d) from unnest(cast(:days as date[])) d
where to_regclass('public.launches_' || to_char(d, 'YYYYMMDD')) is null

-- name: cancel_open
-- Cancels the open launches of jobs, in id order, so that two updates of many cannot deadlock.
-- Running ones are asked to stop, or left alone.
with l as (
  select scheduled_at, id from launches
  where job_id = any(cast(:jobs as uuid[])) and phase < 3 and (:running or state <> 'running')
  order by id
  for no key update
)
update launches t
set state = case t.state when 'running' then t.state else 'cancelled' end,
    phase = case t.state when 'running' then t.phase else 3 end,
    finished_at = case t.state when 'running' then null else now() end,
    cancel_requested = true
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: terminate_open
-- Ends the open launches of a job and takes their claims away.
with l as (
  select scheduled_at, id from launches
  where job_id = :job and phase < 3
  order by id
  for no key update
)
update launches t
set state = 'cancelled', phase = 3, finished_at = now(), cancel_requested = true,
    result = jsonb_build_object('outcome', 'terminated', 'message',
      'ended for a later launch (overlap terminate_other)')
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: cancel_backfill
-- Cancels the open launches of a backfill, in id order, as `cancel_open` does those of a job.
with l as (
  select scheduled_at, id from launches
  where job_id = :job and phase < 3 and origin = :origin and (:running or state <> 'running')
  order by id
  for no key update
)
update launches t
set state = case t.state when 'running' then t.state else 'cancelled' end,
    phase = case t.state when 'running' then t.phase else 3 end,
    finished_at = case t.state when 'running' then null else now() end,
    cancel_requested = true
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id
