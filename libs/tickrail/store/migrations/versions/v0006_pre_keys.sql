-- Keys and tenants as they are made, rotated, suspended and counted.

set local lock_timeout = '5s';

-- What a key may ask in a second, who made it, and which key took its place.
alter table api_keys
  add column description text not null default '',
  add column requests_per_second int check (requests_per_second > 0),
  add column created_by text not null default '',
  add column replaced_by text collate "C";
create index api_keys_made on api_keys (tenant_id, created_at, id);
-- An operator's request that names no tenant is about operators' keys alone.
create policy api_operator on api_keys to tickrail_api
  using (is_operator() and tenant_id is null) with check (is_operator() and tenant_id is null);
revoke update on api_keys from tickrail_api;
grant update (expires_at, revoked_at, replaced_by) on api_keys to tickrail_api;
-- Keys that have long ended go with the history.
grant select (expires_at, revoked_at), delete on api_keys to tickrail_engine;

-- A key is found before its tenant is known.
create function find_key(key_id text)
returns table (id text, tenant_id uuid, tenant_state text, secret_hash bytea, scopes text[],
               requests_per_second int, expired boolean, revoked boolean)
language sql stable security definer set search_path = pg_catalog, public as $$
  select k.id, k.tenant_id, t.state, k.secret_hash, k.scopes, k.requests_per_second,
         coalesce(k.expires_at <= now(), false), k.revoked_at is not null
  from public.api_keys k left join public.tenants t on t.id = k.tenant_id
  where k.id = key_id
$$;

-- Notes the use of keys, of each once a minute.
create function touch_keys(ids text[]) returns void
language sql volatile security definer set search_path = pg_catalog, public as $$
  update public.api_keys set last_used_at = now()
  where id = any(ids) and (last_used_at is null or last_used_at < now() - interval '1 minute')
$$;
revoke all on function find_key(text), touch_keys(text[]) from public;
grant execute on function find_key(text), touch_keys(text[]) to tickrail_api;

-- Why and since when a tenant is in its state, and when it last went on after a suspension: slots
-- that were due before that and are not decided on yet are skipped.
alter table tenants
  add column state_reason text not null default '',
  add column state_at timestamptz,
  add column resumed_at timestamptz;
grant insert (id, name, weight, egress, kafka_topics),
  update (state, state_reason, state_at, resumed_at) on tenants to tickrail_api;

-- Answers of operators' requests that name no tenant, kept by Idempotency-Key.
create table operator_answers (
  key text collate "C" primary key,
  fingerprint bytea not null,
  status int not null,
  headers jsonb not null,
  body bytea not null,
  created_at timestamptz not null default now()
);
create index operator_answers_age on operator_answers (created_at);
alter table operator_answers enable row level security;
alter table operator_answers force row level security;
create policy api_operator on operator_answers to tickrail_api
  using (is_operator()) with check (is_operator());
create policy engine on operator_answers to tickrail_engine using (true) with check (true);
create policy owner on operator_answers to current_user using (true) with check (true);
grant select, insert, update on operator_answers to tickrail_api;
grant select (created_at), delete on operator_answers to tickrail_engine;
