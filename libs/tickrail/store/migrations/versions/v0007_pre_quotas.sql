-- Quotas of tenants, and what is used of them.

set local lock_timeout = '5s';

-- How much of each thing a tenant may have; the zero tenant's rows hold for everybody who has none of
-- the same name. `amount` null: as much as there is. Operators set them.
create table quotas (
  tenant_id uuid not null,
  quota text collate "C" not null,
  amount double precision check (amount >= 0),
  updated_at timestamptz not null default now(),
  primary key (tenant_id, quota)
);
-- What a tick looks at: nothing where nobody has such a quota.
create index quotas_launches on quotas (tenant_id)
  where quota in ('launches_per_minute', 'launches_per_day');

-- What was used of a quota in a window, counted only where there is a quota, and how much of it, in
-- per cent, its tenant was told of (0, 80, 100).
create table quota_windows (
  tenant_id uuid not null,
  quota text collate "C" not null,
  starts_at timestamptz not null,
  used bigint not null default 0,
  told smallint not null default 0,
  primary key (tenant_id, quota, starts_at)
) with (fillfactor = 50);
create index quota_windows_age on quota_windows (starts_at);

-- The tokens for requests of a tenant (key_id empty) and of a key with a rate of its own; an
-- operator's key is the zero tenant's. `tokens` is what the bucket held at `filled_at`.
create table request_buckets (
  tenant_id uuid not null,
  key_id text collate "C" not null,
  tokens double precision not null,
  filled_at timestamptz not null,
  primary key (tenant_id, key_id)
) with (fillfactor = 50);

do $$
declare
  t text;
begin
  foreach t in array array['quotas', 'quota_windows', 'request_buckets'] loop
    execute format('alter table %I enable row level security', t);
    execute format('alter table %I force row level security', t);
    execute format('create policy engine on %I to tickrail_engine using (true) with check (true)', t);
    execute format('create policy owner on %I to current_user using (true) with check (true)', t);
  end loop;
  foreach t in array array['quota_windows', 'request_buckets'] loop
    execute format($p$create policy api on %I to tickrail_api
      using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)
      with check (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)$p$, t);
  end loop;
end
$$;
-- A tenant sees what it may have and changes none of it.
create policy api on quotas for select to tickrail_api
  using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
create policy api_shared on quotas for select to tickrail_api
  using (tenant_id = '00000000-0000-0000-0000-000000000000');
create policy api_operator on quotas to tickrail_api
  using (is_operator()) with check (is_operator());

grant select, insert, update, delete on quotas to tickrail_api;
grant select, insert, update on quota_windows, request_buckets to tickrail_api;
grant select on quotas to tickrail_engine;
grant select, insert, update, delete on quota_windows to tickrail_engine;
grant select, delete on request_buckets to tickrail_engine;
