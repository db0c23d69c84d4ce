-- Who of a tenant is told when a quota is nearly used up.

set local lock_timeout = '5s';

-- The channels of a tenant, as its jobs' `notify` names them. No row: nobody is told.
create table quota_channels (
  tenant_id uuid primary key references tenants (id),
  channels text[] not null,
  updated_at timestamptz not null default now()
);
alter table quota_channels enable row level security;
alter table quota_channels force row level security;
create policy api on quota_channels to tickrail_api
  using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)
  with check (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
create policy engine on quota_channels to tickrail_engine using (true) with check (true);
create policy owner on quota_channels to current_user using (true) with check (true);
grant select, insert, update on quota_channels to tickrail_api;
grant select on quota_channels to tickrail_engine;

-- Keeps a notice for each channel that a tenant has for its quotas. Whoever tells of many tenants
-- does so in the order of their ids, as with `add_notice`.
create function add_quota_notice(tenant uuid, about text, said text, data jsonb, most int)
returns void language sql set search_path = pg_catalog, public as $$
  select public.add_notice($1, 'quota.reached', $2, c.channel, $3, $4, $5)
  from public.quota_channels q cross join lateral unnest(q.channels) as c (channel)
  where q.tenant_id = $1
$$;
revoke all on function add_quota_notice(uuid, text, text, jsonb, int) from public;
grant execute on function add_quota_notice(uuid, text, text, jsonb, int) to tickrail_engine;

-- The same for the API, which writes no notices otherwise: for the tenant of its transaction alone,
-- and only to the channels that this tenant has.
create function add_own_quota_notice(about text, said text, data jsonb, most int)
returns void language sql security definer set search_path = pg_catalog, public as $$
  select public.add_quota_notice(nullif(current_setting('tickrail.tenant', true), '')::uuid,
                                 $1, $2, $3, $4)
$$;
revoke all on function add_own_quota_notice(text, text, jsonb, int) from public;
grant execute on function add_own_quota_notice(text, text, jsonb, int) to tickrail_api;
