-- The first schema. Roles: the owner runs migrations; tickrail_api serves requests under row
-- security; tickrail_engine runs schedulers and workers. Nobody has BYPASSRLS.

do $$
begin
  if not exists (select from pg_roles where rolname = 'tickrail_api') then
    create role tickrail_api login noinherit nobypassrls;
  end if;
  if not exists (select from pg_roles where rolname = 'tickrail_engine') then
    create role tickrail_engine login noinherit nobypassrls;
  end if;
exception when duplicate_object or unique_violation then
  null;  -- another migration of this cluster made them at this moment
end
$$;

-- One row: what every process must agree on.
create table installation (
  singleton boolean primary key default true check (singleton),
  id uuid not null default gen_random_uuid(),
  partitions int not null check (partitions between 1 and 1024),
  kafka_partitions int not null check (kafka_partitions between 1 and 1024),
  generation int not null default 0 check (generation between 0 and 31),
  tzdata text not null default '',
  created_at timestamptz not null default now(),
  check (partitions % kafka_partitions = 0)
);

create table tenants (
  id uuid primary key,
  name text collate "C" not null unique,
  state text not null default 'active' check (state in ('active', 'suspended', 'deleted')),
  created_at timestamptz not null default now()
);

-- tenant_id null: an operator key.
create table api_keys (
  id text collate "C" primary key,
  tenant_id uuid references tenants (id),
  name text not null default '',
  secret_hash bytea not null,
  scopes text[] not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz
);
create index api_keys_tenant on api_keys (tenant_id, id);

-- The fence: the epoch of each partition's present owner.
create table partitions (
  partition smallint primary key,
  epoch bigint not null default 0,
  owner text not null default '',
  taken_at timestamptz
) with (fillfactor = 50);

create table queues (
  name text collate "C" primary key,
  kinds text[] not null,
  paused boolean not null default false,
  created_at timestamptz not null default now()
);

create table jobs (
  id uuid primary key,
  tenant_id uuid not null references tenants (id),
  name text collate "C" not null,
  partition smallint not null,
  version int not null default 1,
  state text not null check (state in ('active', 'paused', 'finished', 'deleted')),
  next_run_at timestamptz,
  last_slot_at timestamptz,
  launched bigint not null default 0,
  plan jsonb not null,
  paused jsonb,
  resume_at timestamptz,
  error text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
) with (fillfactor = 80);
create unique index jobs_live_name on jobs (tenant_id, name) where state <> 'deleted';
create index jobs_due on jobs (partition, next_run_at)
  where state = 'active' and next_run_at is not null;
create index jobs_resume on jobs (partition, resume_at) where resume_at is not null;
create index jobs_tenant on jobs (tenant_id, created_at, id);

create table job_versions (
  job_id uuid not null references jobs (id),
  version int not null,
  tenant_id uuid not null references tenants (id),
  definition jsonb not null,
  created_at timestamptz not null default now(),
  created_by text not null default '',
  primary key (job_id, version)
);

create table job_tags (
  job_id uuid not null references jobs (id),
  tenant_id uuid not null references tenants (id),
  key text collate "C" not null,
  value text collate "C" not null,
  primary key (job_id, key)
);
create index job_tags_find on job_tags (tenant_id, key, value, job_id);

-- The record of one slot. phase is a coarse state for the indexes (0 held, 1 due, 2 in flight,
-- 3 ended): an index that mentions state would be written by every move.
create table launches (
  id uuid not null,
  scheduled_at timestamptz not null,
  tenant_id uuid not null,
  job_id uuid not null,
  job_version int not null,
  partition smallint not null,
  queue text collate "C" not null,
  priority smallint not null,
  origin text collate "C" not null,
  state text collate "C" not null check (state in ('held', 'due', 'queued', 'running',
    'succeeded', 'dead', 'abandoned', 'cancelled', 'expired')),
  phase smallint not null,
  attempt int not null default 1,
  failures int not null default 0,
  max_attempts int not null,
  rerun boolean not null,
  visibility real not null,
  due_at timestamptz not null,
  start_before timestamptz,
  created_at timestamptz not null default now(),
  queued_at timestamptz,
  publications int not null default 0,
  claim bigint,
  claim_expires_at timestamptz,
  worker text,
  started_at timestamptz,
  finished_at timestamptz,
  cancel_requested boolean not null default false,
  redrive_count int not null default 0,
  dlq_owed boolean not null default false,
  epoch bigint not null,
  payload jsonb,
  result jsonb,
  primary key (scheduled_at, id),
  constraint launches_phase check (phase = case state
    when 'held' then 0 when 'due' then 1 when 'queued' then 2 when 'running' then 2 else 3 end)
) partition by range (scheduled_at);
create index launches_tenant on launches (tenant_id, scheduled_at, id);
create index launches_job on launches (job_id, scheduled_at);
create index launches_open on launches (job_id, scheduled_at) where phase < 3;
create index launches_held on launches (partition) where phase = 0;
create index launches_due on launches (partition, queue, tenant_id, due_at) where phase = 1;
create index launches_flight on launches (partition) where phase = 2;
create index launches_owed on launches (partition) where dlq_owed;

-- One row for each attempt that ended otherwise than by success; a success is in its launch.
create table attempts (
  launch_id uuid not null,
  scheduled_at timestamptz not null,
  tenant_id uuid not null,
  attempt int not null,
  claim bigint,
  worker text,
  started_at timestamptz,
  finished_at timestamptz not null default now(),
  outcome text not null,
  certain boolean not null,
  code int,
  message text not null default '',
  body text not null default '',
  primary key (scheduled_at, launch_id, attempt)
) partition by range (scheduled_at);

-- Launches whose dead letter is not published yet, as the letter needs them.
create view dead_letters_owed with (security_invoker = true) as
select l.id, l.scheduled_at, l.job_id, j.name as job_name, l.tenant_id, l.partition, l.queue,
       l.attempt, l.failures, l.redrive_count, l.state,
       coalesce(l.result, '{}'::jsonb) as result, l.finished_at,
       coalesce((select jsonb_agg(jsonb_build_object('attempt', a.attempt, 'outcome', a.outcome,
           'message', left(a.message, 500), 'started_at', a.started_at,
           'finished_at', a.finished_at, 'worker', a.worker) order by a.attempt)
         from attempts a where a.scheduled_at = l.scheduled_at and a.launch_id = l.id),
         '[]'::jsonb) as history
from launches l
join jobs j on j.id = l.job_id
where l.dlq_owed;

-- Slots that were not launched: reason, first and last slot, how many.
create table skips (
  job_id uuid not null,
  scheduled_at timestamptz not null,
  last_at timestamptz not null,
  tenant_id uuid not null,
  count bigint not null check (count > 0),
  reason text not null check (reason in ('overlap', 'misfire', 'paused', 'blackout', 'excluded',
    'quota', 'deadline', 'too_old', 'skipped_by_hand')),
  created_at timestamptz not null default now(),
  primary key (scheduled_at, job_id, reason)
) partition by range (scheduled_at);
create index skips_job on skips (job_id, scheduled_at);

create table calendars (
  tenant_id uuid not null references tenants (id),
  name text collate "C" not null,
  version int not null default 1,
  document jsonb not null,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, name)
);

create table backfills (
  id uuid primary key,
  tenant_id uuid not null references tenants (id),
  job_id uuid not null references jobs (id),
  state text not null,
  document jsonb not null,
  created_at timestamptz not null default now()
);
create index backfills_job on backfills (job_id, id);

create table operations (
  id uuid primary key,
  tenant_id uuid not null references tenants (id),
  kind text not null,
  state text not null,
  document jsonb not null,
  created_at timestamptz not null default now()
);

create table secrets (
  tenant_id uuid not null references tenants (id),
  name text collate "C" not null,
  ciphertext bytea not null,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, name)
);

create table idempotency_keys (
  tenant_id uuid not null references tenants (id),
  key text collate "C" not null,
  fingerprint bytea not null,
  status int,
  headers jsonb,
  body bytea,
  created_at timestamptz not null default now(),
  locked_until timestamptz,
  primary key (tenant_id, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

create table audit_log (
  id uuid primary key,
  tenant_id uuid not null references tenants (id),
  at timestamptz not null default now(),
  actor text not null,
  action text not null,
  subject text not null,
  before jsonb,
  after jsonb,
  request_id text not null default '',
  address text not null default ''
);
create index audit_log_tenant on audit_log (tenant_id, at, id);

-- Claim numbers: no cache, so that a later claim of a launch is always the higher one.
create sequence claims cache 1;

-- Day partitions are made and dropped by these, so that the engine need not own the tables.
create function make_day(day date) returns void
language plpgsql security definer set search_path = pg_catalog, public as $$
declare
  t text;
  child text;
begin
  perform pg_advisory_xact_lock(hashtext('tickrail.make_day'));
  foreach t in array array['launches', 'attempts', 'skips'] loop
    child := format('%s_%s', t, to_char(day, 'YYYYMMDD'));
    if to_regclass(format('public.%I', child)) is null then
      execute format(
        'create table public.%I partition of public.%I for values from (%L) to (%L)%s',
        child, t, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC',
        case when t = 'launches' then ' with (fillfactor = 70, '
          || 'autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000)'
          else '' end);
    end if;
  end loop;
end
$$;

-- Drops a day unless it holds an open launch or an owed dead letter; answers whether it did.
create function drop_day(day date) returns boolean
language plpgsql security definer set search_path = pg_catalog, public as $$
declare
  t text;
  child text := format('launches_%s', to_char(day, 'YYYYMMDD'));
  busy boolean;
begin
  set local lock_timeout = '1s';
  perform pg_advisory_xact_lock(hashtext('tickrail.make_day'));
  if to_regclass(format('public.%I', child)) is null then
    return false;
  end if;
  execute format('select exists (select from public.%I where phase < 3 or dlq_owed)', child)
    into busy;
  if busy then
    return false;
  end if;
  foreach t in array array['launches', 'attempts', 'skips'] loop
    execute format('drop table if exists public.%I', format('%s_%s', t, to_char(day, 'YYYYMMDD')));
  end loop;
  return true;
end
$$;

create function oldest_day() returns date
language sql stable security definer set search_path = pg_catalog, public as $$
  select min(to_date(right(c.relname, 8), 'YYYYMMDD'))
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'public.launches'::regclass
$$;

-- A key is found before its tenant is known: the one door round row security.
create function find_api_key(key_id text)
returns table (id text, tenant_id uuid, tenant_state text, secret_hash bytea, scopes text[],
               expires_at timestamptz, revoked_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public as $$
  select k.id, k.tenant_id, t.state, k.secret_hash, k.scopes, k.expires_at, k.revoked_at
  from public.api_keys k left join public.tenants t on t.id = k.tenant_id
  where k.id = key_id
$$;

create function touch_api_key(key_id text) returns void
language sql volatile security definer set search_path = pg_catalog, public as $$
  update public.api_keys set last_used_at = now()
  where id = key_id and (last_used_at is null or last_used_at < now() - interval '1 minute')
$$;

-- An operator names a tenant by id or name; answers its id and state.
create function find_tenant(tenant text)
returns table (id uuid, state text)
language sql stable security definer set search_path = pg_catalog, public as $$
  select t.id, t.state from public.tenants t where t.id::text = tenant or t.name = tenant
$$;

-- Row security: enabled and forced on each table with a tenant_id. The owner's policy serves the
-- security definer functions and the migrations.
do $$
declare
  t text;
begin
  foreach t in array array['api_keys', 'jobs', 'job_versions', 'job_tags', 'launches', 'attempts',
    'skips', 'calendars', 'backfills', 'operations', 'secrets', 'idempotency_keys', 'audit_log']
  loop
    execute format('alter table %I enable row level security', t);
    execute format('alter table %I force row level security', t);
    execute format($p$create policy api on %I to tickrail_api
      using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)
      with check (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)$p$, t);
    execute format('create policy engine on %I to tickrail_engine using (true) with check (true)', t);
    execute format('create policy owner on %I to current_user using (true) with check (true)', t);
  end loop;
end
$$;
alter table tenants enable row level security;
alter table tenants force row level security;
create policy api on tenants for select to tickrail_api
  using (id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
create policy engine on tenants to tickrail_engine using (true) with check (true);
create policy owner on tenants to current_user using (true) with check (true);

revoke all on all functions in schema public from public;
grant usage on schema public to tickrail_api, tickrail_engine;
grant execute on function find_api_key(text), touch_api_key(text), find_tenant(text)
  to tickrail_api;
grant execute on function make_day(date), drop_day(date), oldest_day() to tickrail_engine;
-- The API records launches by hand and slots skipped at a resume, also of a day not made yet.
grant execute on function make_day(date), oldest_day() to tickrail_api;

grant select on alembic_version to tickrail_api, tickrail_engine;
grant select on installation, partitions, queues, tenants, calendars, attempts, skips
  to tickrail_api;
grant select, insert, update on jobs, launches, operations, backfills to tickrail_api;
grant select, insert on job_versions to tickrail_api;
grant insert on audit_log, skips to tickrail_api;
grant select on audit_log to tickrail_api;
grant select, insert, update, delete on job_tags, calendars, secrets, idempotency_keys
  to tickrail_api;
grant select, insert, update on api_keys to tickrail_api;

grant select, insert, update, delete on jobs, job_versions, job_tags, launches, attempts, skips,
  calendars, backfills, operations, idempotency_keys to tickrail_engine;
grant select, update on partitions, installation to tickrail_engine;
grant select on tenants, queues, secrets to tickrail_engine;
grant insert on audit_log to tickrail_engine;
grant select on dead_letters_owed to tickrail_engine;
grant usage, select, update on sequence claims to tickrail_engine;

insert into queues (name, kinds) values ('default', array['webhook', 'kafka', 'task']);
