-- What a worker does. The claim decides everything; messages are only nudges.

-- name: claim
-- Claims what can start now, in id order, waiting for row locks; in the first row the instant of that.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(attempt)b::int4[])
    as m (id, scheduled_at, attempt)
), l as (
  select t.scheduled_at, t.id
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state in ('due', 'queued') and t.attempt = m.attempt and t.due_at <= clock_timestamp()
    and (t.start_before is null or t.attempt > 1 or t.start_before > clock_timestamp())
  order by t.id
  for no key update of t
), u as (
  update launches t
  set state = 'running', phase = 2, claim = (select generation::int8 << 48 from installation) + nextval('claims'),
      claim_expires_at = clock_timestamp() + make_interval(secs => t.visibility),
      worker = %(worker)s, started_at = clock_timestamp(), cancel_requested = false, progress = null
  from l
  where t.scheduled_at = l.scheduled_at and t.id = l.id
  returning t.*
)
select u.id, u.scheduled_at, u.job_id, u.job_version, u.tenant_id, u.partition, u.queue, u.attempt,
       u.failures, u.max_attempts, u.rerun, u.visibility, u.due_at, u.claim,
       v.definition::text, u.payload::text, u.redrive_count, u.origin,
       case when row_number() over () = 1 then clock_timestamp() end
from u join job_versions v on v.job_id = u.job_id and v.version = u.job_version

-- name: targets
-- What the targets of those jobs are that have one of some kinds.
select j.id, (select min(k) from jsonb_object_keys(v.definition->'target') as k),
       coalesce(v.definition->'target'->'task'->>'name', '')
from jobs j join job_versions v on v.job_id = j.id and v.version = j.version
where j.id = any(%(id)b::uuid[]) and v.definition->'target' ?| %(kinds)s::text[]

-- name: states
-- Why the other requests were refused.
select t.id, t.state, t.attempt, t.due_at > clock_timestamp(),
       coalesce(t.start_before <= clock_timestamp(), false)
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id

-- name: lock_running
-- Locks launches that two statements of one transaction end, in id order over both.
select from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
where t.state = 'running'
order by t.id
for no key update of t

-- name: succeed
-- The hot end: attempts that succeeded.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(claim)b::int8[],
    %(result)s::text[]) as m (id, scheduled_at, claim, result)
), l as (
  select t.scheduled_at, t.id, m.result
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state = 'running' and t.claim = m.claim
  order by t.id
  for no key update of t
)
update launches t
set state = 'succeeded', phase = 3, finished_at = clock_timestamp(), result = l.result::jsonb
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id
returning t.id

-- name: end_attempts
-- Attempts that ended otherwise: the verdict, unless a cancel was asked for, read in this update.
-- expires_at is given by the reaper, which may end only the claim it saw.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(claim)b::int8[],
    %(expires_at)b::timestamptz[], %(state)s::text[], %(attempt)b::int4[], %(failures)b::int4[],
    %(delay)b::float8[], %(owed)s::bool[], %(outcome)s::text[], %(certain)s::bool[],
    %(code)b::int4[], %(message)s::text[], %(body)s::text[], %(result)s::text[])
    as m (id, scheduled_at, claim, expires_at, state, attempt, failures, delay, owed, outcome,
          certain, code, message, body, result)
), l as (
  select t.scheduled_at, t.id, t.tenant_id, t.attempt as ended, t.worker, t.started_at,
         case when t.cancel_requested then 'cancelled' else m.state end as next,
         m.claim, m.attempt, m.failures, m.delay, m.owed, m.outcome, m.certain, m.code, m.message,
         m.body, m.result
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state = 'running' and t.claim = m.claim
    and (m.expires_at is null or t.claim_expires_at = m.expires_at)
  order by t.id
  for no key update of t
), a as (
  insert into attempts (launch_id, scheduled_at, tenant_id, attempt, claim, worker, started_at,
    finished_at, outcome, certain, code, message, body)
  select id, scheduled_at, tenant_id, ended, claim, worker, started_at, clock_timestamp(), outcome,
    certain, code, message, body
  from l
  on conflict (scheduled_at, launch_id, attempt) do nothing
)
update launches t
set state = l.next,
    phase = case l.next when 'due' then 1 else 3 end,
    attempt = case l.next when 'due' then l.attempt else t.attempt end,
    failures = case l.next when 'cancelled' then t.failures else l.failures end,
    due_at = case l.next when 'due' then clock_timestamp() + make_interval(secs => l.delay)
             else t.due_at end,
    finished_at = case l.next when 'due' then null else clock_timestamp() end,
    dlq_owed = l.owed and l.next <> 'cancelled',
    dead_at = case when l.next in ('dead', 'abandoned') then clock_timestamp() end,
    claim_expires_at = null,
    result = l.result::jsonb
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id
returning t.id, t.state

-- name: note_stale
-- Results under claims that are over: noted beside the attempt as it ended, or as the attempt of a
-- launch that was ended from outside. The report of an end that was recorded already, made again
-- because its answer was lost, is none.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(claim)b::int8[],
    %(attempt)b::int4[], %(outcome)s::text[], %(certain)s::bool[], %(code)b::int4[],
    %(message)s::text[], %(body)s::text[])
    as m (id, scheduled_at, claim, attempt, outcome, certain, code, message, body)
)
insert into attempts as a (launch_id, scheduled_at, tenant_id, attempt, claim, worker, started_at,
  outcome, certain, code, message, body, stale_result)
select t.id, t.scheduled_at, t.tenant_id, m.attempt, m.claim, t.worker, t.started_at, m.outcome,
  m.certain, m.code, m.message, m.body,
  jsonb_strip_nulls(jsonb_build_object('outcome', m.outcome, 'code', m.code, 'message', m.message,
    'body', m.body, 'at', clock_timestamp()))
from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
where t.attempt > m.attempt or (t.claim = m.claim and t.state <> 'succeeded' and t.phase = 3)
order by t.id
on conflict (scheduled_at, launch_id, attempt) do update
set stale_result = excluded.stale_result
where a.claim = excluded.claim and a.outcome <> excluded.outcome and a.stale_result is null

-- name: extend
-- Keeps claims; refused for a run that began too long ago. An expired claim nobody took is kept.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(claim)b::int8[],
    %(visibility)b::float8[]) as m (id, scheduled_at, claim, visibility)
), l as (
  select t.scheduled_at, t.id, m.visibility
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state = 'running' and t.claim = m.claim
    and t.started_at > clock_timestamp() - %(ceiling)s::interval
  order by t.id
  for no key update of t
)
update launches t
set claim_expires_at = clock_timestamp() + make_interval(secs => l.visibility)
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id
returning t.id, t.cancel_requested

-- name: asked_to_stop
-- Running launches whose cancel was asked for.
select t.id
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
where t.cancel_requested

-- name: letters_of
-- The dead letters that these launches owe.
select o.id, o.scheduled_at, o.job_id, o.job_name, o.tenant_id, o.partition, o.queue, o.attempt,
       o.failures, o.redrive_count, o.state, o.result, o.finished_at, o.history
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join dead_letters_owed o on o.scheduled_at = m.scheduled_at and o.id = m.id

-- name: settle
-- The dead letter of this attempt is published.
with l as (
  select t.scheduled_at, t.id
  from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(attempt)b::int4[])
    as m (id, scheduled_at, attempt)
  join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.attempt = m.attempt and t.dlq_owed
  order by t.id
  for no key update of t
)
update launches t set dlq_owed = false
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: keep_undecodable
-- A message that no worker can read. A topic that was made anew gives its offsets once more.
insert into undecodable as u (id, queue, topic, partition, "offset", value, size, error)
values (%(id)s, %(queue)s, %(topic)s, %(partition)s, %(offset)s, %(value)s, %(size)s, %(error)s)
on conflict (id) do update
set value = excluded.value, size = excluded.size, error = excluded.error, at = now()
where u.value <> excluded.value or u.size <> excluded.size
