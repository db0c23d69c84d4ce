-- Notices: kept beside what they tell of, delivered by workers.

-- name: add
-- Keeps notices, a row for each channel of each, in the order given.
select add_notice(m.tenant, m.kind, m.about, m.channel, m.said, m.data::jsonb, %(most)s)
from unnest(%(tenant)b::uuid[], %(kind)s::text[], %(about)s::text[], %(channel)s::text[],
  %(said)s::text[], %(data)s::text[]) with ordinality
  as m (tenant, kind, about, channel, said, data, place)
order by m.place

-- name: take
-- Takes due notices for a while. Tenants go in turns, so that none waits for another's storm: a walk
-- over the tenants that have any, the oldest of each, one after the other. What the caller has out
-- counts as turns that a tenant has had, and takes of the room that it has.
with recursive heads as (
  (select tenant_id from notices where state = 'pending' order by tenant_id limit 1)
  union all
  select (select n.tenant_id from notices n
          where n.state = 'pending' and n.tenant_id > heads.tenant_id
          order by n.tenant_id limit 1)
  from heads where heads.tenant_id is not null
), due as (
  select d.id, d.due_at,
         coalesce(r.out, 0) + row_number() over (partition by heads.tenant_id order by d.due_at)
           as turn
  from heads
  join tenants o on o.id = heads.tenant_id and o.state = 'active'  -- others' wait
  left join unnest(%(tenants)b::uuid[], %(out)b::int4[]) as r (tenant, out)
    on r.tenant = heads.tenant_id
  cross join lateral (
    select n.id, n.due_at from notices n
    where n.state = 'pending' and n.tenant_id = heads.tenant_id and n.due_at <= now()
      and split_part(n.channel, ':', 1) = any(%(kinds)s::text[])
    order by n.due_at
    limit greatest(0, least(%(limit)s, %(most)s - coalesce(r.out, 0)))
  ) d
), chosen as (
  select n.id
  from due join notices n on n.id = due.id
  where n.state = 'pending' and n.due_at <= now()
  order by due.turn, due.due_at
  limit %(limit)s
  for update of n skip locked
)
update notices t
set due_at = clock_timestamp() + %(hold)s::interval, attempts = t.attempts + 1
from chosen
where t.id = chosen.id
returning t.id, t.tenant_id, t.kind, t.about, t.channel, t.said, t.data, t.suppressed, t.created_at,
          t.attempts

-- name: settle
-- What became of deliveries: over, or to be tried again after a while.
with m as (
  select * from unnest(%(id)b::uuid[], %(attempts)b::int4[], %(state)s::text[],
    %(retry)b::float8[], %(error)s::text[]) as m (id, attempts, state, retry, error)
), l as (
  select n.id, m.state, m.retry, m.error
  from m join notices n on n.id = m.id
  where n.state = 'pending' and n.attempts = m.attempts
  order by n.id
  for no key update of n
)
update notices t
set state = l.state, error = l.error,
    due_at = case l.state when 'pending' then clock_timestamp() + make_interval(secs => l.retry)
             else t.due_at end,
    ended_at = case when l.state <> 'pending' then clock_timestamp() end
from l
where t.id = l.id
