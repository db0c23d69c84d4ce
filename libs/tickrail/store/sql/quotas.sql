-- What the owner of partitions does about quotas of launches, in the transaction that makes them.

-- name: hold
-- The quotas of launches that these tenants have, each held until the transaction ends; who finds one
-- held by another transaction leaves that tenant's jobs for later, and waits for nobody.
select t.id, m.amount, d.amount, pg_try_advisory_xact_lock(%(lock)s, hashtext(t.id::text))
from unnest(%(tenant)b::uuid[]) as t (id)
left join lateral (
  select q.amount from quotas q
  where q.quota = 'launches_per_minute' and q.tenant_id in (t.id, %(installation)s)
  order by q.tenant_id = %(installation)s
  limit 1
) m on true
left join lateral (
  select q.amount from quotas q
  where q.quota = 'launches_per_day' and q.tenant_id in (t.id, %(installation)s)
  order by q.tenant_id = %(installation)s
  limit 1
) d on true
where (m.amount is not null or d.amount is not null)
  and exists (
    select from quotas q where q.quota in ('launches_per_minute', 'launches_per_day'))

-- name: used
-- What is used of quotas in their windows.
select w.tenant_id, w.quota, w.used, w.told
from unnest(%(tenant)b::uuid[], %(quota)s::text[], %(starts_at)b::timestamptz[])
  as m (tenant_id, quota, starts_at)
join quota_windows w
  on w.tenant_id = m.tenant_id and w.quota = m.quota and w.starts_at = m.starts_at

-- name: count
-- Counts what was made. Whoever does so holds the tenant's quotas, so nobody waits here.
insert into quota_windows (tenant_id, quota, starts_at, used, told)
select * from unnest(%(tenant)b::uuid[], %(quota)s::text[], %(starts_at)b::timestamptz[],
  %(used)b::int8[], %(told)b::int2[])
on conflict (tenant_id, quota, starts_at) do update
set used = quota_windows.used + excluded.used, told = greatest(quota_windows.told, excluded.told)

-- name: note_reached
-- What a tenant is told of its quotas.
insert into audit_log (id, tenant_id, actor, action, subject, after)
select m.id, m.tenant_id, 'system', 'quota.reached', m.subject, m.after::jsonb
from unnest(%(id)b::uuid[], %(tenant)b::uuid[], %(subject)s::text[], %(after)s::text[])
  as m (id, tenant_id, subject, after)

-- name: add_notices
-- Tells the channels that tenants have for their quotas, in the order given: by tenant.
select add_quota_notice(m.tenant, m.about, m.said, m.data::jsonb, %(most)s)
from unnest(%(tenant)b::uuid[], %(about)s::text[], %(said)s::text[], %(data)s::text[])
  with ordinality as m (tenant, about, said, data, place)
order by m.place
