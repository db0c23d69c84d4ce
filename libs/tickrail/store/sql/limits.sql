-- Limits at the claim. Rows of limits are locked before launches, each in the order of its key; keys
-- of concurrency have no row, their locks are advisory.

-- name: is_limited
-- Whether any of these launches falls under a limit, a pause or a concurrency key, or waits where one
-- was.
-- What there is of limits, pauses and waits at all is asked once, and not for each launch.
with there as materialized (
  select exists (select from queues where paused) as pauses,
    exists (select from limits
            where paused or max_running is not null or rate_count is not null) as limits,
    exists (select from holds where claim is null) as waits
)
select exists (
  select from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
  join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.concurrency_key is not null
    or ((select pauses from there)
        and exists (select from queues q where q.name = t.queue and q.paused))
    or ((select limits from there)
        and exists (select from limits x
                    where (x.paused or x.max_running is not null or x.rate_count is not null)
                      and ((x.tenant_id in (%(installation)s, t.tenant_id) and x.scope = 'queue'
                            and x.name = t.queue)
                           or (x.tenant_id = t.tenant_id and x.scope = 'tenant' and x.name = ''))))
    or ((select waits from there)
        and (exists (select from holds h
                     where h.tenant_id in (%(installation)s, t.tenant_id) and h.scope = 'queue'
                       and h.name = t.queue and h.launch_id = t.id and h.claim is null)
             or exists (select from holds h
                        where h.tenant_id = t.tenant_id and h.scope = 'tenant' and h.name = ''
                          and h.launch_id = t.id and h.claim is null))))

-- name: askers
-- What decides which limits these launches fall under.
select t.id, t.tenant_id, t.queue, t.concurrency_key
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id

-- name: lock_limits
-- The limits that there are, locked.
select x.tenant_id, x.scope, x.name, x.paused, x.max_running, x.rate_count, x.rate_seconds,
       x.tokens, nullif(x.filled_at, '-infinity')
from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[]) as s (tenant_id, scope, name)
join limits x on x.tenant_id = s.tenant_id and x.scope = s.scope and x.name = s.name
order by x.tenant_id, x.scope, x.name
for update of x

-- name: lock_keys
-- One lock for many keys, so that a claim of many keys needs few.
select pg_advisory_xact_lock(%(lock)s, bucket)
from (select distinct mod(abs(hashtext(k)::int8), 64)::int4 as bucket
      from unnest(%(key)s::text[]) as k order by 1) as buckets

-- name: count_running
-- What runs in limits that are used for the first time: it holds a place from now on.
insert into holds (tenant_id, scope, name, launch_id, scheduled_at, priority, claim)
select s.tenant_id, s.scope, s.name, t.id, t.scheduled_at, t.priority, t.claim
from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[]) as s (tenant_id, scope, name)
join launches t on t.phase = 2 and t.state = 'running'
  and (s.scope = 'tenant' or t.queue = s.name)
  and (s.tenant_id = %(installation)s or t.tenant_id = s.tenant_id)
on conflict (tenant_id, scope, name, launch_id)
  do update set claim = excluded.claim, reason = null, due_at = null

-- name: lock_claimable
-- What could start now if there were no limits, all of the batch locked in id order.
select t.id, t.tenant_id, t.queue, t.concurrency_key, t.concurrency_limit
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[], %(attempt)b::int4[])
  as m (id, scheduled_at, attempt)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
where t.state in ('due', 'queued') and t.attempt = m.attempt and t.due_at <= clock_timestamp()
  and (t.start_before is null or t.attempt > 1 or t.start_before > clock_timestamp())
order by t.id
for no key update of t

-- name: usage
-- What runs in each scope, and what waits there for a place and for a token besides those that ask.
select s.tenant_id, s.scope, s.name,
  (select count(*) from holds h
   join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
   where h.tenant_id = s.tenant_id and h.scope = s.scope and h.name = s.name
     and h.claim is not null and t.state = 'running' and t.claim = h.claim),
  (select count(*) from holds h
   where h.tenant_id = s.tenant_id and h.scope = s.scope and h.name = s.name
     and h.claim is null and h.reason <> 'rate' and h.launch_id <> all(%(id)b::uuid[])),
  (select count(*) from holds h
   join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
   where h.tenant_id = s.tenant_id and h.scope = s.scope and h.name = s.name
     and h.claim is null and h.reason = 'rate' and h.launch_id <> all(%(id)b::uuid[])
     and h.attempt = t.attempt and t.state in ('due', 'queued'))
from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[]) as s (tenant_id, scope, name)

-- name: paused_queues
-- Queues that are paused for everybody.
select name from queues where name = any(%(queue)s::text[]) and paused

-- name: take_tokens
-- What is left in the buckets.
update limits x
set tokens = m.tokens, filled_at = %(now)s
from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[], %(tokens)b::float8[])
  as m (tenant_id, scope, name, tokens)
where x.tenant_id = m.tenant_id and x.scope = m.scope and x.name = m.name

-- name: place
-- Places of claims that were granted.
insert into holds (tenant_id, scope, name, launch_id, scheduled_at, priority, claim)
select m.tenant_id, m.scope, m.name, t.id, t.scheduled_at, t.priority, t.claim
from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[], %(id)b::uuid[],
  %(scheduled_at)b::timestamptz[]) as m (tenant_id, scope, name, id, scheduled_at)
join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
on conflict (tenant_id, scope, name, launch_id)
  do update set claim = excluded.claim, reason = null, due_at = null

-- name: end_waits
-- Launches that were granted wait no more, whatever they waited for.
delete from holds h
using unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[], %(id)b::uuid[])
  as m (tenant_id, scope, name, id)
where h.tenant_id = m.tenant_id and h.scope = m.scope and h.name = m.name
  and h.launch_id = m.id and h.claim is null

-- name: wait
-- Those refused wait: due later, under the same attempt, in one place each; what they are due since is
-- kept, a microsecond earlier each time, so that a late mark of this publication is not taken for the
-- next.
with m as (
  select * from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[], %(id)b::uuid[],
    %(scheduled_at)b::timestamptz[], %(reason)s::text[], %(delay)b::float8[])
    as m (tenant_id, scope, name, id, scheduled_at, reason, delay)
), elsewhere as (
  delete from holds h
  using m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  cross join lateral (values
    (%(installation)s::uuid, 'queue', t.queue), (t.tenant_id, 'queue', t.queue),
    (t.tenant_id, 'tenant', ''), (t.tenant_id, 'key', t.concurrency_key)
  ) as s (tenant_id, scope, name)
  where h.tenant_id = s.tenant_id and h.scope = s.scope and h.name = s.name
    and h.launch_id = t.id and h.claim is null
    and (s.tenant_id, s.scope, s.name) <> (m.tenant_id, m.scope, m.name)
  returning h.launch_id, h.attempt, h.due_at, h.asked_at
), before as (
  select launch_id, attempt, min(due_at) as due_at, min(asked_at) as asked_at
  from elsewhere group by 1, 2
), h as (
  insert into holds (tenant_id, scope, name, launch_id, scheduled_at, priority, reason, attempt,
    due_at, asked_at)
  select m.tenant_id, m.scope, m.name, t.id, t.scheduled_at, t.priority, m.reason, t.attempt,
         least(t.due_at, b.due_at) - interval '1 microsecond',
         coalesce(b.asked_at, clock_timestamp())
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  left join before b on b.launch_id = t.id and b.attempt = t.attempt
  on conflict (tenant_id, scope, name, launch_id) do update
  set claim = null, reason = excluded.reason, attempt = excluded.attempt,
      due_at = case when holds.attempt = excluded.attempt
               then least(holds.due_at - interval '1 microsecond', excluded.due_at)
               else excluded.due_at end,
      asked_at = case when holds.attempt = excluded.attempt then holds.asked_at
                 else excluded.asked_at end
)
update launches t
set state = 'due', phase = 1, due_at = clock_timestamp() + make_interval(secs => m.delay)
from m
where t.scheduled_at = m.scheduled_at and t.id = m.id

-- name: give_back
-- Those refused by a pause are due as before (a microsecond earlier, see above); the relay leaves them
-- alone until it is over.
update launches t set state = 'due', phase = 1, due_at = t.due_at - interval '1 microsecond'
from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
where t.scheduled_at = m.scheduled_at and t.id = m.id

-- name: leave
-- Places of attempts that have ended, and who of those that wait there may try: due since when they
-- were. A row that somebody locks is passed over: it is being claimed or cancelled.
with m as (
  select t.id, t.tenant_id, t.queue, t.concurrency_key
  from unnest(%(id)b::uuid[], %(scheduled_at)b::timestamptz[]) as m (id, scheduled_at)
  join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
), s as (
  select m.id, s.tenant_id, s.scope, s.name
  from m cross join lateral (values
    (%(installation)s::uuid, 'queue', m.queue), (m.tenant_id, 'queue', m.queue),
    (m.tenant_id, 'tenant', ''), (m.tenant_id, 'key', m.concurrency_key)
  ) as s (tenant_id, scope, name)
), gone as (
  delete from holds h using s
  where h.tenant_id = s.tenant_id and h.scope = s.scope and h.name = s.name
    and h.launch_id = s.id and h.claim is not null
  returning h.tenant_id, h.scope, h.name
), freed as (
  select tenant_id, scope, name, count(*) as places from gone group by 1, 2, 3
), waiters as (
  select w.* from freed f
  cross join lateral (
    select c.* from (values (0, %(high)s), (1, %(normal)s), (2, %(low)s)) as k (class, weight)
    cross join lateral (
      select o.*, (row_number() over (order by o.asked_at) - 1 - ln(1 - random())) / k.weight as turn
      from (
        select t.scheduled_at, t.id, h.due_at, h.asked_at
        from holds h
        join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
        where h.tenant_id = f.tenant_id and h.scope = f.scope and h.name = f.name
          and h.claim is null and h.priority = k.class and h.reason <> 'rate'
          and h.attempt = t.attempt and t.state = 'due' and t.due_at > clock_timestamp()
        order by h.asked_at
        limit f.places
      ) o
    ) c
    order by c.turn
    limit f.places
  ) w
), l as (
  select t.scheduled_at, t.id, w.due_at
  from waiters w join launches t on t.scheduled_at = w.scheduled_at and t.id = w.id
  where t.state = 'due' and t.due_at > clock_timestamp()
  for no key update of t skip locked
)
update launches t set due_at = l.due_at
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: tokens_come
-- Launches that waited for a token whose time has come: due since when they were, so that they go
-- before what became due after them.
with l as (
  select t.scheduled_at, t.id, h.due_at
  from holds h
  join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
  where h.claim is null and h.reason = 'rate' and h.attempt = t.attempt
    and t.partition = any(%(partitions)b::int2[])
    and t.state = 'due' and t.due_at <= clock_timestamp() and t.due_at > h.due_at
  for no key update of t skip locked
)
update launches t set due_at = l.due_at
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: tokens_sooner
-- Launches that wait for a token longer than the rate asks for: it was raised or removed, or others
-- before them wait no more. They keep their order. Those whose token is there are due since when
-- they were.
with waiters as (
  select h.tenant_id, h.scope, h.name, t.scheduled_at, t.id, t.partition, t.state, t.due_at,
         h.due_at as since,
         row_number() over (
           partition by h.tenant_id, h.scope, h.name order by t.due_at, h.asked_at) as turn
  from holds h
  join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
  where h.claim is null and h.reason = 'rate' and h.attempt = t.attempt
    and t.state in ('due', 'queued')
), rates as (
  select x.tenant_id, x.scope, x.name, r.per_second,
         case when x.filled_at = '-infinity' then 1 + r.per_second
         else least(1 + r.per_second, x.tokens + r.per_second * greatest(
           0, extract(epoch from clock_timestamp() - x.filled_at)::float8)) end as tokens
  from limits x
  cross join lateral (select x.rate_count / x.rate_seconds::float8 as per_second) r
  where x.rate_count is not null
), m as (
  select w.scheduled_at, w.id, w.since, w.due_at,
         coalesce((w.turn - r.tokens) / r.per_second, 0) as delay
  from waiters w
  left join rates r on r.tenant_id = w.tenant_id and r.scope = w.scope and r.name = w.name
  where w.partition = any(%(partitions)b::int2[])
    and w.state = 'due' and w.due_at > clock_timestamp()
), l as (
  select t.scheduled_at, t.id,
         case when m.delay > 0 then clock_timestamp() + make_interval(secs => m.delay)
         else m.since end as due_at
  from m join launches t on t.scheduled_at = m.scheduled_at and t.id = m.id
  where t.state = 'due' and t.due_at = m.due_at
    and (m.delay <= 0
         or extract(epoch from t.due_at - clock_timestamp())::float8 > m.delay + %(slack)s::float8)
  for no key update of t skip locked
)
update launches t set due_at = l.due_at
from l
where t.scheduled_at = l.scheduled_at and t.id = l.id

-- name: places_free
-- Launches that wait where there are places that nobody told them of: the holder was lost or ended
-- from outside, or the limit was raised. Those that are under way already count. Under a key each has
-- the limit that its own job gives. Looks at a part of the scopes in each pass.
with scopes as (
  select distinct h.tenant_id, h.scope, h.name from holds h
  where h.claim is null and h.reason <> 'rate'
    and (h.tenant_id, h.scope, h.name) > (%(tenant)s, %(scope)s, %(name)s)
  order by 1, 2, 3
  limit %(limit)s
), counted as (
  select s.*,
    (select count(*) from holds h
     join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
     where h.tenant_id = s.tenant_id and h.scope = s.scope and h.name = s.name
       and h.claim is not null and t.state = 'running' and t.claim = h.claim) as running,
    (select x.max_running from limits x
     where x.tenant_id = s.tenant_id and x.scope = s.scope and x.name = s.name) as most
  from scopes s
), waiters as (
  select w.* from counted c
  cross join lateral (
    select f.*
    from (
      select e.*, count(*) filter (where e.awake) over () as under_way,
             row_number() over (partition by e.awake order by e.priority, e.asked_at) as turn
      from (
        select t.scheduled_at, t.id, t.partition, h.due_at, h.priority, h.asked_at, a.awake,
               p.places
        from holds h
        join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
        cross join lateral (
          select t.state = 'queued' or t.due_at <= clock_timestamp() as awake) a
        cross join lateral (
          select case when c.scope = 'key' then coalesce(t.concurrency_limit, 1) - c.running
                 else coalesce(c.most - c.running, 1000) end as places) p
        where h.tenant_id = c.tenant_id and h.scope = c.scope and h.name = c.name
          and h.claim is null and h.reason <> 'rate' and h.attempt = t.attempt
          and t.state in ('due', 'queued') and (a.awake or p.places > 0)
        order by h.priority, h.asked_at
        limit greatest(0, coalesce(c.most - c.running, 1000)) + 100
      ) e
    ) f
    where not f.awake and f.turn <= f.places - f.under_way
  ) w
), l as (
  select t.scheduled_at, t.id, w.due_at
  from waiters w join launches t on t.scheduled_at = w.scheduled_at and t.id = w.id
  where w.partition = any(%(partitions)b::int2[])
    and t.state = 'due' and t.due_at > clock_timestamp()
  for no key update of t skip locked
), u as (
  update launches t set due_at = l.due_at
  from l
  where t.scheduled_at = l.scheduled_at and t.id = l.id
  returning t.id
)
select s.tenant_id, s.scope, s.name, (select count(*) from u) from scopes s

-- name: are_limits
-- Whether there is any limit or paused queue, and whether a launch waits at one.
select exists (select from limits x
               where x.paused or x.max_running is not null or x.rate_count is not null)
       or exists (select from queues where paused),
       exists (select from holds where claim is null)

-- name: loads
-- The limits of these scopes, how many launches of these partitions wait there, how many run.
select x.tenant_id, x.scope, x.name, x.paused, x.max_running, x.rate_count, x.rate_seconds,
  (select count(*) from holds h
   join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
   where h.tenant_id = x.tenant_id and h.scope = x.scope and h.name = x.name and h.claim is null
     and h.attempt = t.attempt and t.state = 'due' and t.due_at > clock_timestamp()
     and t.partition = any(%(partitions)b::int2[])),
  (select count(*) from holds h
   join launches t on t.scheduled_at = h.scheduled_at and t.id = h.launch_id
   where h.tenant_id = x.tenant_id and h.scope = x.scope and h.name = x.name
     and h.claim is not null and t.state = 'running' and t.claim = h.claim)
from unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[]) as s (tenant_id, scope, name)
join limits x on x.tenant_id = s.tenant_id and x.scope = s.scope and x.name = s.name

-- name: queued_by_tenant
-- What is published and not started, by tenant and queue.
select tenant_id, queue, count(*)
from launches
where partition = any(%(partitions)b::int2[]) and phase = 2 and state = 'queued'
  and scheduled_at >= %(since)b
group by tenant_id, queue

-- name: maybe_stale_holds
-- Places of attempts that are over, and waiters whose launches wait no more, locked. A row that
-- somebody else has is being used again; one that was used again a moment ago may still be among them.
select h.tenant_id, h.scope, h.name, h.launch_id from holds h
where not exists (
  select from launches t
  where t.scheduled_at = h.scheduled_at and t.id = h.launch_id
    and case when h.claim is null then t.state in ('due', 'queued') and t.attempt = h.attempt
        else t.state = 'running' and t.claim = h.claim end)
limit %(limit)s
for update of h skip locked

-- name: drop_stale_holds
-- Those of these locked rows that are stale as they are now.
delete from holds h
using unnest(%(tenant)b::uuid[], %(scope)s::text[], %(name)s::text[], %(id)b::uuid[])
  as m (tenant_id, scope, name, id)
where h.tenant_id = m.tenant_id and h.scope = m.scope and h.name = m.name and h.launch_id = m.id
  and not exists (
    select from launches t
    where t.scheduled_at = h.scheduled_at and t.id = h.launch_id
      and case when h.claim is null then t.state in ('due', 'queued') and t.attempt = h.attempt
          else t.state = 'running' and t.claim = h.claim end)
