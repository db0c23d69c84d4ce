-- What is read to explain one launch, in one transaction. Parameters are SQLAlchemy's (`:name`).

-- name: facts
-- The launch's own columns that no list shows, and what it belongs to.
select l.partition, l.start_before, l.claim_expires_at, l.publications, l.concurrency_key,
       l.concurrency_limit, coalesce(t.state = 'active', false) as tenant_active,
       j.state as job_state, j.paused as job_paused, v.definition,
       q.name is not null as queue_there, coalesce(q.paused, false) as queue_paused
from launches l
join jobs j on j.id = l.job_id
join job_versions v on v.job_id = l.job_id and v.version = l.job_version
left join tenants t on t.id = l.tenant_id
left join queues q on q.name = l.queue
where l.scheduled_at = :at and l.id = :launch

-- name: others
-- Open launches of the job that are not held, this one aside.
select id, state, worker from launches
where job_id = :job and phase in (1, 2) and id <> :launch
order by scheduled_at, id
limit 5

-- name: held_before
-- Held launches of the job that are released before this one.
select count(*) from launches
where job_id = :job and phase = 0 and (scheduled_at, id) < (:at, :launch)

-- name: caps
-- The limits that the launch falls under.
select tenant_id <> :tenant as shared, scope = 'queue' as queue, paused, paused_reason, max_running,
       rate_count, rate_seconds, tokens, nullif(filled_at, '-infinity') as filled_at
from limits
where (scope = 'queue' and name = :queue) or (scope = 'tenant' and name = '' and tenant_id = :tenant)
order by shared desc, queue desc

-- name: holders
-- Who runs under a concurrency key of the tenant.
select t.id, t.state, t.worker, count(*) over () as holding
from holds h
join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
where h.scope = 'key' and h.name = :key and h.claim is not null
  and t.state = 'running' and t.claim = h.claim
order by t.started_at, t.id
limit 5

-- name: counts
-- What others have before it and run, in numbers.
select * from explain_counts(:launch, :at, :most)

-- name: serving
-- Workers heard of lately that serve the queue.
select count(*) filter (where not draining) as queue,
       count(*) filter (where not draining and :kind = any(kinds)) as target,
       count(*) filter (where draining) as draining
from workers
where :queue = any(queues) and seen_at > now() - cast(:within as interval)
