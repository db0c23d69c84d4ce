-- What a change of the zone data does to next runs. Every write is made behind the fence.

-- name: versions
-- The zone data by which the next runs of partitions were computed.
select partition, tzdata from partitions where partition = any(%(partitions)b::int2[])

-- name: page
-- A walk over the jobs of partitions, and which of them wait for a slot that zone data can move:
-- one in a zone other than UTC, or under calendars, which have zones of their own. So many rows are
-- read, not so many found, since a statement may take two seconds.
select id, state in ('active', 'paused') and next_run_at is not null
  and (coalesce(plan->'calendars', 'null') <> 'null'
       or plan @? '$.schedule.**.time_zone ? (@ != "UTC")')
from (
  select id, state, next_run_at, plan from jobs
  where partition = any(%(partitions)b::int2[])
    and (%(after)s::uuid is null or id > %(after)s::uuid)
  order by id
  limit %(limit)s
) p

-- name: waiting
-- Some jobs, locked, with when their definition was written; who has one locked keeps it for now.
select j.id, j.tenant_id, j.partition, j.version, j.next_run_at, j.last_slot_at, j.launched,
       j.plan::text, j.skip_next, j.catch_up::text, j.awaits, v.created_at
from jobs j
join job_versions v on v.job_id = j.id and v.version = j.version
where j.id = any(%(jobs)b::uuid[]) and j.state in ('active', 'paused')
  and j.next_run_at is not null
order by j.id
for update of j skip locked

-- name: move
-- The next runs of jobs; none: an active one is finished.
update jobs j
set next_run_at = m.next_run_at,
    state = case when m.next_run_at is null and j.state = 'active' then 'finished' else j.state end
from unnest(%(id)b::uuid[], %(next_run_at)b::timestamptz[]) as m (id, next_run_at)
where j.id = m.id

-- name: record
-- What moved, and by which zone data.
insert into tzdata_changes (job_id, tenant_id, from_version, to_version, before_at, after_at)
select m.id, m.tenant_id, p.tzdata, %(version)s, m.before_at, m.after_at
from unnest(%(id)b::uuid[], %(tenant_id)b::uuid[], %(partition)b::int2[],
  %(before_at)b::timestamptz[], %(next_run_at)b::timestamptz[])
  as m (id, tenant_id, partition, before_at, after_at)
join partitions p on p.partition = m.partition

-- name: store_version
-- The zone data by which the next runs of partitions are computed from now on.
update partitions set tzdata = %(version)s where partition = any(%(partitions)b::int2[])

-- name: raise_installation
-- The newest zone data that was ever in use here.
update installation set tzdata = %(version)s where tzdata collate "C" < %(version)s

-- name: forget
-- Changes that are older than a year.
delete from tzdata_changes where changed_at < now() - interval '1 year'
