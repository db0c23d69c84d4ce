-- What the owner of partitions does. Every write is made behind the fence.

-- name: fence
-- The stored epochs, locked until the transaction ends; the lock is what keeps an old owner out.
select partition, epoch from partitions
where partition = any(%(partitions)b::int2[])
order by partition
for no key update

-- name: due_jobs
-- Jobs whose next run has come; where it came while their tenant was suspended, when that ended. One
-- index probe a partition; the outer limit ends the walk early. The tenant is looked at by an
-- expression, which no plan joins: while statistics still take a crowd for one job, a join began with
-- the tenant and read all its jobs for each batch.
select j.id, j.tenant_id, j.partition, j.version, j.next_run_at, j.last_slot_at, j.launched,
       j.plan::text, j.skip_next, j.catch_up::text, j.awaits,
       (select t.resumed_at from tenants t where t.id = j.tenant_id and t.resumed_at > j.next_run_at)
from unnest(%(partitions)b::int2[]) as p (partition)
cross join lateral (
  select * from jobs
  where jobs.partition = p.partition and jobs.state = 'active' and jobs.next_run_at <= now()
    and (select t.state from tenants t where t.id = jobs.tenant_id) = 'active'
  order by jobs.next_run_at
  limit %(limit)s
  for update of jobs skip locked
) j
limit %(limit)s

-- name: due_in_turns
-- A part of the batch where more are due than it holds. Tenants go in turns, and in the share of each the
-- job that has just become due and the one that waits longest: so the crowd after an outage does
-- not delay what is on time, nor is it starved. Looks at so many from both ends of each partition;
-- and, from the old end, at a few jobs of each of so many tenants and instants: so who is due at the
-- instant of a crowd is found beside it, however large it is. Locks those chosen; some to spare, for
-- rows locked elsewhere. The lateral and its limit hold the plan to one look-up by id each: old
-- statistics take the due jobs for few, and would read all of them for each one chosen.
select j.id, j.tenant_id, j.partition, j.version, j.next_run_at, j.last_slot_at, j.launched,
       j.plan::text, j.skip_next, j.catch_up::text, j.awaits,
       (select t.resumed_at from tenants t where t.id = j.tenant_id and t.resumed_at > j.next_run_at)
from (
  select e.id, row_number() over (partition by e.tenant_id order by least(2 * e.oldest,
    2 * e.newest - 1)) as turn
  from (
    select c.id, c.tenant_id,
      row_number() over (partition by c.tenant_id
        order by c.next_run_at, c.partition, c.id) as oldest,
      row_number() over (partition by c.tenant_id
        order by c.next_run_at desc, c.partition desc, c.id desc) as newest
    from unnest(%(partitions)b::int2[]) as p (partition)
    cross join lateral (
      (select id, tenant_id, jobs.partition, next_run_at from jobs
       where jobs.partition = p.partition and jobs.state = 'active' and next_run_at <= now()
       order by next_run_at
       limit %(look)s)
      union
      (select id, tenant_id, jobs.partition, next_run_at from jobs
       where jobs.partition = p.partition and jobs.state = 'active' and next_run_at <= now()
       order by next_run_at desc
       limit %(look)s)
      union
      (with recursive heads as (
         (select next_run_at, tenant_id, 1 as n from jobs
          where jobs.partition = p.partition and jobs.state = 'active' and next_run_at <= now()
          order by next_run_at, tenant_id
          limit 1)
         union all
         select x.next_run_at, x.tenant_id, h.n + 1 from heads h
         cross join lateral (
           select j.next_run_at, j.tenant_id from jobs j
           where j.partition = p.partition and j.state = 'active' and j.next_run_at <= now()
             and (j.next_run_at, j.tenant_id) > (h.next_run_at, h.tenant_id)
           order by j.next_run_at, j.tenant_id
           limit 1
         ) x
         where h.n < %(look)s
       )
       select f.id, f.tenant_id, f.partition, f.next_run_at from heads
       cross join lateral (
         select j.id, j.tenant_id, j.partition, j.next_run_at from jobs j
         where j.partition = p.partition and j.state = 'active'
           and j.next_run_at = heads.next_run_at and j.tenant_id = heads.tenant_id
         limit %(each)s
       ) f)
    ) c
    where exists (select from tenants t where t.id = c.tenant_id and t.state = 'active')
  ) e
  order by turn
  limit %(limit)s + 100
) chosen
cross join lateral (
  select * from jobs where jobs.id = chosen.id limit 1 for update of jobs skip locked
) j
where j.state = 'active' and j.next_run_at <= now()
order by chosen.turn, j.next_run_at
limit %(limit)s

-- name: next_due
-- The next instant that a job of these partitions waits for.
select min(n.next_run_at)
from unnest(%(partitions)b::int2[]) as p (partition)
cross join lateral (
  select next_run_at from jobs
  where jobs.partition = p.partition and jobs.state = 'active' and jobs.next_run_at > now()
  order by jobs.next_run_at
  limit 1
) n

-- name: jobs_to_resume
-- Paused jobs whose time to resume has come.
select j.id, j.tenant_id, j.partition, j.version, j.next_run_at, j.last_slot_at, j.launched,
       j.plan::text, j.skip_next, j.catch_up::text, j.awaits, j.resume_at
from jobs j
where j.partition = any(%(partitions)b::int2[]) and j.resume_at <= now() and j.state = 'paused'
order by j.id
limit %(limit)s
for update of j skip locked

-- name: jobs_completed
-- Jobs that await the end of a launch and have none open, and when the last one ended. One that is
-- made at this moment is not seen; the job's overlap policy meets it at the next slot.
select j.id, j.tenant_id, j.partition, j.version, j.next_run_at, j.last_slot_at, j.launched,
       j.plan::text, j.skip_next, j.catch_up::text, j.awaits,
       coalesce((
         select l.finished_at from launches l
         where l.job_id = j.id and l.finished_at is not null and not l.origin ^@ 'backfill:'
         order by l.scheduled_at desc, l.finished_at desc
         limit 1), j.last_slot_at, now())
from jobs j
where j.partition = any(%(partitions)b::int2[]) and j.awaits and j.state = 'active'
  and not exists (
    select from launches o
    where o.job_id = j.id and o.phase < 3 and not o.origin ^@ 'backfill:')
order by j.id
limit %(limit)s
for update of j skip locked

-- name: calendar_versions
-- The versions of calendars, to see which are known; one that was made anew begins with 1 again.
select c.tenant_id, c.name, c.version, (extract(epoch from c.created_at) * 1000000)::bigint
from calendars c
join unnest(%(tenant_id)b::uuid[], %(name)s::text[]) as m (tenant_id, name)
  on m.tenant_id = c.tenant_id and m.name = c.name

-- name: calendar_texts
-- Calendars themselves.
select c.tenant_id, c.name, c.version, c.document::text,
       (extract(epoch from c.created_at) * 1000000)::bigint
from calendars c
join unnest(%(tenant_id)b::uuid[], %(name)s::text[]) as m (tenant_id, name)
  on m.tenant_id = c.tenant_id and m.name = c.name

-- name: open_counts
-- Open launches of jobs, how many of them are held, and how many are of backfills.
select job_id, count(*), count(*) filter (where phase = 0),
       count(*) filter (where origin ^@ 'backfill:')
from launches
where job_id = any(%(jobs)b::uuid[]) and phase < 3
group by job_id

-- name: insert_launches
-- The records of planned slots; one that is there already stays as it is.
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, max_attempts, rerun, visibility, due_at, start_before, epoch,
  concurrency_key, concurrency_limit, trace)
select m.id, m.scheduled_at, m.tenant_id, m.job_id, m.job_version, m.partition, m.queue,
  m.priority, 'schedule', m.state, case m.state when 'held' then 0 else 1 end, m.max_attempts,
  m.rerun, m.visibility, m.due_at, m.start_before, m.epoch, m.concurrency_key, m.concurrency_limit,
  m.trace
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(tenant_id)b::uuid[],
  %(job_id)b::uuid[], %(job_version)b::int4[], %(partition)b::int2[], %(queue)s::text[],
  %(priority)b::int2[], %(state)s::text[], %(max_attempts)b::int4[], %(rerun)s::bool[],
  %(visibility)b::float8[], %(due_at)b::timestamptz[], %(start_before)b::timestamptz[],
  %(epoch)b::int8[], %(concurrency_key)s::text[], %(concurrency_limit)b::int4[],
  %(trace)s::text[])
  as m (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority, state,
        max_attempts, rerun, visibility, due_at, start_before, epoch, concurrency_key,
        concurrency_limit, trace)
on conflict (scheduled_at, id) do nothing
returning id

-- name: insert_skips
-- Slots that are not launched.
insert into skips (job_id, scheduled_at, last_at, tenant_id, count, reason)
select * from unnest(%(job_id)b::uuid[], %(first)b::timestamptz[], %(last)b::timestamptz[],
  %(tenant_id)b::uuid[], %(count)b::int8[], %(reason)s::text[])
on conflict (scheduled_at, job_id, reason) do nothing

-- name: move_jobs
-- The next run of each planned job; none, and no end of a launch to wait for: it is finished.
update jobs j
set next_run_at = m.next_run_at, last_slot_at = coalesce(m.last_slot, j.last_slot_at),
    launched = j.launched + m.launched, error = m.error,
    resume_at = null, paused = null, awaits = m.awaits, skip_next = j.skip_next - m.by_hand,
    catch_up = case when m.error is null then null else j.catch_up end,
    failures_from = case when j.state = 'paused' then now() else j.failures_from end,
    state = case when m.next_run_at is null and not m.awaits then 'finished' else 'active' end
from unnest(%(id)b::uuid[], %(next_run_at)b::timestamptz[], %(last_slot)b::timestamptz[],
  %(launched)b::int8[], %(error)s::text[], %(awaits)s::bool[], %(by_hand)b::int4[])
  as m (id, next_run_at, last_slot, launched, error, awaits, by_hand)
where j.id = m.id

-- name: lock_open
-- Locks the open launches of jobs that two statements of one transaction end, in id order over both.
select from launches where job_id = any(%(jobs)b::uuid[]) and phase < 3
order by id
for no key update

-- name: cancel_open
-- Asks the open launches of jobs to stop: what does not run yet is cancelled at once.
with l as (
  select scheduled_at, id from launches
  where job_id = any(%(jobs)b::uuid[]) and phase < 3
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
-- Ends the open launches of jobs and takes their claims away.
with l as (
  select scheduled_at, id from launches
  where job_id = any(%(jobs)b::uuid[]) and phase < 3
  order by id
  for no key update
)
update launches t
set state = 'cancelled', phase = 3, finished_at = now(), cancel_requested = true,
    result = jsonb_build_object('outcome', 'terminated', 'message',
      'ended for a later slot (overlap terminate_other)')
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: backlog
-- Due launches, the first ones of each (partition, queue, class, tenant): a walk over the heads of
-- the index, so that one tenant's backlog is not read to find another's launch, nor what is caught
-- up with to find what is on time.
with recursive heads as (
  (select p.partition, h.queue, h.priority, h.tenant_id
   from unnest(%(partitions)b::int2[]) as p (partition)
   cross join lateral (
     select queue, priority, tenant_id from launches l
     where l.partition = p.partition and l.phase = 1 and l.scheduled_at >= %(since)b
     order by queue, priority, tenant_id
     limit 1
   ) h)
  union all
  select heads.partition, n.queue, n.priority, n.tenant_id
  from heads
  cross join lateral (
    select queue, priority, tenant_id from launches l
    where l.partition = heads.partition and l.phase = 1 and l.scheduled_at >= %(since)b
      and (l.queue, l.priority, l.tenant_id) > (heads.queue, heads.priority, heads.tenant_id)
    order by queue, priority, tenant_id
    limit 1
  ) n
)
select d.id, d.scheduled_at, d.job_id, d.tenant_id, d.partition, d.queue, d.priority, d.attempt,
       d.due_at, t.weight, d.trace
from heads
join tenants t on t.id = heads.tenant_id and t.state = 'active'
join queues q on q.name = heads.queue and not q.paused
left join limits x on x.tenant_id = heads.tenant_id and x.scope = 'queue' and x.name = heads.queue
cross join lateral (
  select * from launches l
  where l.partition = heads.partition and l.phase = 1 and l.queue = heads.queue
    and l.priority = heads.priority and l.tenant_id = heads.tenant_id and l.due_at <= now() and l.scheduled_at >= %(since)b
  order by l.due_at
  limit %(limit)s
) d
where x.paused is not true

-- name: queued_counts
-- How much of each class of each queue is published and not started, by partition.
select queue, priority, partition, count(*)
from launches
where partition = any(%(partitions)b::int2[]) and phase = 2 and state = 'queued'
  and scheduled_at >= %(since)b
group by queue, priority, partition

-- name: oldest_open
-- How far back open launches are looked for: to the beginning of the first day that has one. Each
-- day is asked for one in the order of the index of what is open, since by the primary key, which
-- has the instants, all that ended would be read first. The hour is for what is inserted before this
-- is read again: a launch by hand has the slot of the second that began already.
select coalesce(min(d.day), now()) - interval '1 hour'
from generate_series(
  date_trunc('day', (select min(scheduled_at) from launches)),
  (select max(scheduled_at) from launches), interval '1 day') as d (day)
cross join lateral (
  select from launches
  where phase < 3 and scheduled_at >= d.day and scheduled_at < d.day + interval '1 day'
  order by job_id, scheduled_at
  limit 1
) o

-- name: mark_queued
-- After the delivery report. Locked rows are being claimed or cancelled and are passed over; the
-- fixed order keeps this from a deadlock with the claim. A launch that a limit has refused meanwhile
-- has another due time: its message is used up.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(attempt)b::int4[],
    %(due_at)b::timestamptz[]) as m (id, scheduled_at, attempt, due_at)
), l as (
  select t.scheduled_at, t.id
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state = 'due' and t.attempt = m.attempt and t.due_at = m.due_at
  order by t.id
  for no key update of t skip locked
)
update launches t
set state = 'queued', phase = 2, queued_at = now(), publications = t.publications + 1
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: mark_unpublishable
-- The bus will never take it.
with m as (
  select * from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(attempt)b::int4[])
    as m (id, scheduled_at, attempt)
), l as (
  select t.scheduled_at, t.id
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state = 'due' and t.attempt = m.attempt
  order by t.id
  for no key update of t
)
update launches t
set state = 'dead', phase = 3, finished_at = now(), dead_at = now(), failures = t.failures + 1,
    dlq_owed = true,
    result = jsonb_build_object('outcome', %(reason)s::text, 'message', %(reason)s::text)
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id
returning t.id

-- name: requeue_lost
-- Messages that nobody took for too long: due again under the same attempt number.
with l as (
  select scheduled_at, id from launches
  where partition = any(%(partitions)b::int2[]) and phase = 2 and state = 'queued'
    and scheduled_at >= %(since)b
    and queued_at < now() - least(%(lost_after)s::interval * power(2, greatest(publications, 1) - 1),
                                  greatest(interval '1 hour', %(lost_after)s::interval))
  order by id
  limit %(limit)s
  for no key update skip locked
)
update launches t set state = 'due', phase = 1
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: expire
-- First attempts that did not start before their deadline; found by the index of deadlines.
with l as (
  select scheduled_at, id from launches
  where partition = any(%(partitions)b::int2[]) and phase in (1, 2) and state in ('due', 'queued')
    and scheduled_at >= %(since)b and start_before <= now() and attempt = 1
  order by id
  limit %(limit)s
  for no key update skip locked
)
update launches t
set state = 'expired', phase = 3, finished_at = now(),
    result = jsonb_build_object('outcome', 'deadline', 'message', 'not started before its deadline')
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: cancel_deleted
-- Cancels what does not run of tenants that are deleted.
with gone as materialized (
  select id from tenants where state = 'deleted'
), l as (
  select scheduled_at, id from launches
  where partition = any(%(partitions)b::int2[]) and scheduled_at >= %(since)b
    and (phase = 0 or phase = 1 or phase = 2) and state <> 'running'  -- each has its index
    and exists (select from gone)
    and tenant_id = any(array(select id from gone))
  order by id
  limit %(limit)s
  for no key update skip locked
)
update launches t
set state = 'cancelled', phase = 3, finished_at = now(), cancel_requested = true
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: jobs_to_release
-- Jobs with a held launch and no other open one, their rows locked.
select j.id, j.partition
from jobs j
where j.id in (
    select h.job_id from launches h
    where h.partition = any(%(partitions)b::int2[]) and h.phase = 0 and h.scheduled_at >= %(since)b)
  and not exists (select from launches o where o.job_id = j.id and o.phase in (1, 2))
order by j.id
limit %(limit)s
for update of j skip locked

-- name: release_held
-- The oldest held launch of each of these jobs is due, if still no other one is open.
with l as (
  select distinct on (h.job_id) h.scheduled_at, h.id
  from launches h
  where h.job_id = any(%(jobs)b::uuid[]) and h.phase = 0
    and not exists (select from launches o where o.job_id = h.job_id and o.phase in (1, 2))
  order by h.job_id, h.scheduled_at, h.id
)
update launches t set state = 'due', phase = 1, due_at = greatest(t.due_at, now())
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id and t.phase = 0

-- name: lost_claims
-- Running launches whose claim has expired, with the retry policy of their version.
select l.id, l.scheduled_at, l.job_id, l.partition, l.attempt, l.failures, l.max_attempts, l.rerun,
       l.claim, l.claim_expires_at, coalesce(l.worker, ''), v.definition -> 'retry'
from launches l
join job_versions v on v.job_id = l.job_id and v.version = l.job_version
where l.partition = any(%(partitions)b::int2[]) and l.phase = 2 and l.state = 'running'
  and l.claim_expires_at < now() and l.scheduled_at >= %(since)b
order by l.id
limit %(limit)s

-- name: lock_lost
-- Locks lost launches, those left out that a worker locks: it finishes or extends at this moment, or
-- stands still in its transaction, for which the owner's other work must not wait.
select t.id
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
where t.state = 'running'
order by t.id
for no key update of t skip locked

-- name: owed_letters
-- Dead letters owed for too long.
select id, scheduled_at, job_id, job_name, tenant_id, partition, queue, attempt, failures,
       redrive_count, state, result, finished_at, history
from dead_letters_owed
where partition = any(%(partitions)b::int2[]) and finished_at < now() - %(older_than)s::interval
order by finished_at
limit %(limit)s

-- name: dead_letters
-- How many dead letters wait for somebody, up to a bound: a walk over their own small index.
select count(*) from (select from launches where dead_at is not null limit %(most)s) d
