-- What the watchdog reads, of all tenants, and the one thing that it writes: who is silent. Nothing
-- here trusts `next_run_at`. Parameters are psycopg's (`%(name)s`).

-- name: at_one_instant
-- All that the transaction reads is as it was at its first statement, and nothing is written.
set transaction isolation level repeatable read read only

-- name: page
-- The next ids, whatever their jobs are: so many rows are looked at and no more.
select id from jobs where id > %(after)s order by id limit %(limit)s

-- name: overdue
-- Jobs that wait for an instant that has passed, the first ones of each partition: one index probe
-- for each.
select d.id
from partitions p
cross join lateral (
  select j.id from jobs j
  where j.partition = p.partition and j.state = 'active' and j.next_run_at < %(before)s
  order by j.next_run_at
  limit %(limit)s
) d

-- name: jobs
-- Those of these jobs whose slots are to be decided on: active ones, and paused ones whose pause is
-- over; and since when nothing moved their slots.
select j.id, j.tenant_id, j.partition, j.version, j.next_run_at, j.last_slot_at, j.launched,
       j.plan::text, j.name, j.error, p.tzdata,
       greatest(j.created_at, j.updated_at, j.failures_from, t.resumed_at,
                case j.state when 'paused' then j.resume_at end,
                (select max(c.updated_at) from job_calendars u
                 join calendars c on c.tenant_id = u.tenant_id and c.name = u.calendar
                 where u.job_id = j.id),
                (select max(z.changed_at) from tzdata_changes z where z.job_id = j.id))
from unnest(%(ids)b::uuid[]) as m (id)
join jobs j on j.id = m.id
join tenants t on t.id = j.tenant_id and t.state = 'active'
left join partitions p on p.partition = j.partition
where j.state = 'active' or (j.state = 'paused' and j.resume_at <= now())
order by j.id

-- name: launched
-- The slots of these jobs that the schedule has launched.
select l.job_id, l.scheduled_at
from launches l
where l.job_id = any(%(ids)b::uuid[]) and l.origin = 'schedule'
  and l.scheduled_at > %(since)s and l.scheduled_at <= %(until)s

-- name: skipped
-- The runs of slots of these jobs that are recorded as skipped. Between slots that a calendar leaves
-- out lie others, so such a run tells nothing of them.
select s.job_id, s.scheduled_at, s.last_at
from skips s
where s.job_id = any(%(ids)b::uuid[]) and s.reason <> 'excluded'
  and s.scheduled_at <= %(until)s and s.last_at >= %(since)s

-- name: last_runs
-- Whether a launch of these jobs is open, and when the last one ended or the last slot was skipped.
select m.id,
       exists (select from launches o
               where o.job_id = m.id and o.phase < 3 and not o.origin ^@ 'backfill:'),
       greatest(
         (select greatest(l.scheduled_at, l.finished_at) from launches l
          where l.job_id = m.id and l.finished_at is not null and not l.origin ^@ 'backfill:'
          order by l.scheduled_at desc, l.finished_at desc
          limit 1),
         (select max(greatest(s.last_at, s.created_at)) from skips s where s.job_id = m.id))
from unnest(%(ids)b::uuid[]) as m (id)

-- name: expecting
-- Jobs that should have succeeded by now or are looked at again, held; since when that is counted,
-- and the latest success after it. Of a silent job only what ended since the last look, and a minute
-- before, is new; a launch succeeds within a day of its slot, or is not found by it.
select j.id, j.tenant_id, j.name, j.expect_success_every, j.silent_since, now(),
       j.state = 'active' and t.state = 'active', c.since, v.definition -> 'on_failures',
       (select max(x.finished_at) from (
          select l.finished_at from launches l
          where l.job_id = j.id and l.state = 'succeeded' and not l.origin ^@ 'backfill:'
            and l.scheduled_at > c.after - interval '1 day' and l.finished_at > c.after
          order by l.scheduled_at desc
          limit 100) x)
from jobs j
join tenants t on t.id = j.tenant_id
join job_versions v on v.job_id = j.id and v.version = j.version
cross join lateral (
  select greatest(coalesce(j.silent_since, j.success_due_at - j.expect_success_every),
                  j.failures_from, t.resumed_at) as since
) b
cross join lateral (
  select b.since,
         case when j.silent_since is null then b.since
              else greatest(b.since, j.success_due_at - %(again)s::interval
                                     - interval '1 minute') end as after
) c
where j.success_due_at <= now()
order by j.success_due_at
limit %(limit)s
for no key update of j skip locked

-- name: expect
-- When each of these jobs is looked at next, and since when it is silent.
update jobs j
set success_due_at = m.due_at, silent_since = m.silent_since
from unnest(%(ids)b::uuid[], %(due_at)b::timestamptz[], %(silent_since)b::timestamptz[])
  as m (id, due_at, silent_since)
where j.id = m.id

-- name: silent
-- How many jobs are silent.
select count(*) from jobs where success_due_at is not null and silent_since is not null
