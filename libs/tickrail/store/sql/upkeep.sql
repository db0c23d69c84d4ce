-- What is removed after its time. Parameters are psycopg's (`%(name)s`).

-- name: keys_expiring
-- How many keys end within a time that were used of late and that nobody has replaced.
select count(*) from api_keys
where revoked_at is null and replaced_by is null
  and expires_at > now() and expires_at < now() + %(within)s
  and last_used_at > now() - %(within)s

-- name: purge_jobs
-- Removes jobs that were deleted long ago and have no history any more, the first deleted first, behind
-- a place; how many it removed and looked at, and the last that it looked at.
-- Launches and skips name their job without a reference; backfills have one, and who makes one holds
-- the job's row meanwhile.
with old as (
  select id, deleted_at from jobs
  where state = 'deleted' and deleted_at < now() - %(older)s::interval
    and (deleted_at, id) > (%(after)s::timestamptz, %(after_id)s::uuid)
  order by deleted_at, id
  limit %(looked_at)s
), gone as (
  select j.id from jobs j
  join old on old.id = j.id
  -- Also looked at when the row is locked: one may have come back, and been deleted again.
  where j.state = 'deleted' and j.deleted_at < now() - %(older)s::interval
    and not exists (select from launches x where x.job_id = j.id)
    and not exists (select from skips x where x.job_id = j.id)
    and not exists (select from backfills x where x.job_id = j.id)
  order by old.deleted_at, j.id
  limit %(most)s
  for update of j skip locked
), versions as (
  delete from job_versions x using gone where x.job_id = gone.id
), tags as (
  delete from job_tags x using gone where x.job_id = gone.id
), named as (
  delete from job_calendars x using gone where x.job_id = gone.id
), moves as (
  delete from tzdata_changes x using gone where x.job_id = gone.id
), removed as (
  delete from jobs j using gone where j.id = gone.id returning 1
)
select (select count(*) from removed), count(*), max(deleted_at),
       (array_agg(id order by deleted_at desc, id desc))[1]
from old

-- name: answers
-- Answers kept for repeated requests.
with gone as (
  select tenant_id, key from idempotency_keys
  where created_at < now() - %(older)s::interval
  order by created_at
  limit %(most)s
  for update skip locked
)
delete from idempotency_keys x using gone where x.tenant_id = gone.tenant_id and x.key = gone.key

-- name: operator_answers
-- Those of operators. The engine's role may not change one, so it may not lock one either: two that
-- remove at once wait for each other for a batch.
delete from operator_answers where key in (
  select key from operator_answers
  where created_at < now() - %(older)s::interval
  order by created_at
  limit %(most)s
)

-- name: keys
-- Keys that are over for long; not locked before, as above.
delete from api_keys where id in (
  select id from api_keys
  where least(revoked_at, expires_at) < now() - %(older)s::interval
  order by least(revoked_at, expires_at), id
  limit %(most)s
)

-- name: undecodable
-- Messages that could not be read.
with gone as (
  select id from undecodable
  where at < now() - %(older)s::interval
  order by at, id
  limit %(most)s
  for update skip locked
)
delete from undecodable x using gone where x.id = gone.id

-- name: backfills
-- Backfills that ended long ago.
with gone as (
  select id from backfills
  where finished_at < now() - %(older)s::interval
  order by finished_at, id
  limit %(most)s
  for update skip locked
)
delete from backfills x using gone where x.id = gone.id

-- name: operations
-- Operations that ended long ago.
with gone as (
  select id from operations
  where finished_at < now() - %(older)s::interval
  order by finished_at, id
  limit %(most)s
  for update skip locked
)
delete from operations x using gone where x.id = gone.id

-- name: notices
-- Notices as old as the history goes back, whatever became of them.
with gone as (
  select id from notices
  where created_at < now() - %(older)s::interval
  order by created_at
  limit %(most)s
  for update skip locked
)
delete from notices x using gone where x.id = gone.id

-- name: windows
-- Windows of quotas that are over for long.
with gone as (
  select tenant_id, quota, starts_at from quota_windows
  where starts_at < now() - %(older)s::interval
  order by starts_at
  limit %(most)s
  for update skip locked
)
delete from quota_windows x using gone
where x.tenant_id = gone.tenant_id and x.quota = gone.quota and x.starts_at = gone.starts_at

-- name: buckets
-- Tokens that nobody takes any more. No index by age: it would be written at each slice. There is a
-- row for each tenant and key with a rate, and no more. Not locked before, as operators' answers; one
-- that is used again at that moment is looked at once more and stays.
delete from request_buckets
where filled_at < now() - %(older)s::interval
  and (tenant_id, key_id) in (
    select tenant_id, key_id from request_buckets
    where filled_at < now() - %(older)s::interval
    limit %(most)s
  )
