-- What decides which work goes first and how much at once, and what is known of it while it runs.

set local lock_timeout = '5s';

-- An operator's request sees every tenant's row of the tables that have such a policy. The API sets
-- this in one place, behind the check of the key (store/tenancy.py).
create function is_operator() returns boolean
language sql stable as $$
  select coalesce(current_setting('tickrail.operator', true), '') = 'on'
$$;
grant execute on function is_operator() to tickrail_api;

-- A tenant's share of the work, and what its targets may reach. Operators set it.
alter table tenants
  add column version int not null default 1,
  add column weight smallint not null default 1 check (weight between 1 and 100),
  add column egress jsonb,
  add column kafka_topics text[] not null default '{}';
create policy api_operator on tenants to tickrail_api
  using (is_operator()) with check (is_operator());
grant update (version, weight, egress, kafka_topics) on tenants to tickrail_api;

alter table queues
  add column version int not null default 1,
  add column paused_reason text not null default '';
grant insert, update, delete on queues to tickrail_api;
-- A worker must run all that its queue serves, and only one with an app of its own runs tasks. No
-- version before this one could make a job with a task.
update queues set kinds = array_remove(kinds, 'task') where name = 'default';

-- How much may run at once and start in a time. Scope `tenant` (name empty), `queue` (a queue's
-- name), `key` (a concurrency key). The zero tenant's rows are the installation's. `tokens` is what
-- the rate's bucket held at `filled_at`.
create table limits (
  tenant_id uuid not null,
  scope text collate "C" not null check (scope in ('tenant', 'queue', 'key')),
  name text collate "C" not null,
  paused boolean not null default false,
  paused_reason text not null default '',
  max_running int check (max_running > 0),
  rate_count int check (rate_count > 0),
  rate_seconds real check (rate_seconds > 0),
  tokens double precision not null default 0,
  filled_at timestamptz not null default '-infinity',
  version int not null default 1,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, scope, name)
) with (fillfactor = 50);

-- Who holds a place under a limit, and who waits (claim is null), for what, and since when it is due:
-- while it waits, its launch is due later. It waits in one place at a time, and a wait is of its attempt
-- alone. A place whose launch no longer runs under that claim is
-- free, whoever ended it: the next claim under the limit sees that.
create table holds (
  tenant_id uuid not null,
  scope text collate "C" not null,
  name text collate "C" not null,
  launch_id uuid not null,
  scheduled_at timestamptz not null,
  priority smallint not null,
  claim bigint,
  reason text,
  attempt int,
  due_at timestamptz,
  asked_at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, scope, name, launch_id)
) with (fillfactor = 70);
create index holds_waiting on holds (tenant_id, scope, name, priority, asked_at) where claim is null;
create index holds_owed on holds (tenant_id, scope, name) where reason = 'rate';
create index holds_placed on holds (tenant_id, scope, name) where claim is not null;

-- At most `concurrency_limit` launches with the same key of a tenant run at a time. `progress` is
-- what a run last told of itself.
alter table launches
  add column concurrency_key text collate "C",
  add column concurrency_limit int,
  add column progress jsonb;

-- The result that came for an attempt when its claim was not its worker's any more. It changed
-- nothing; it is kept because it may tell what became of the effect.
alter table attempts add column stale_result jsonb;

-- Whether a job of any tenant names a queue, and how many launches of all tenants wait and run in it.
-- For operators.
create function queue_is_used(queue text) returns boolean
language sql stable security definer set search_path = pg_catalog, public as $$
  select public.is_operator() and (
    exists (select from public.jobs j where j.plan ->> 'queue' = $1 and j.state <> 'deleted')
    or exists (select from public.launches l where l.queue = $1 and l.phase < 3))
$$;
create function queue_depth(queue text)
returns table (due bigint, later bigint, queued bigint, running bigint)
language sql stable security definer set search_path = pg_catalog, public as $$
  select count(*) filter (where l.state = 'due' and l.due_at <= now()),
         count(*) filter (where l.state = 'due' and l.due_at > now()),
         count(*) filter (where l.state = 'queued'),
         count(*) filter (where l.state = 'running')
  from public.launches l
  where public.is_operator() and l.queue = $1 and (l.phase = 1 or l.phase = 2)
$$;
revoke all on function queue_is_used(text), queue_depth(text) from public;
grant execute on function queue_is_used(text), queue_depth(text) to tickrail_api;

-- Workers that are there: written by each every few seconds.
create table workers (
  id text collate "C" primary key,
  name text collate "C" not null,
  queues text[] not null,
  kinds text[] not null,
  tasks text[] not null default '{}',
  version text not null,
  concurrency int not null,
  running int not null default 0,
  draining boolean not null default false,
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now()
) with (fillfactor = 50);
grant select on workers to tickrail_api;
grant select, insert, update, delete on workers to tickrail_engine;

-- What a run printed, the end of it: written while it runs. `ended`: it prints no more.
create table launch_logs (
  launch_id uuid not null,
  scheduled_at timestamptz not null,
  tenant_id uuid not null,
  attempt int not null,
  body text not null default '',
  size bigint not null default 0,
  ended boolean not null default false,
  updated_at timestamptz not null default now(),
  primary key (scheduled_at, launch_id, attempt)
) partition by range (scheduled_at);

-- What others have before a launch of the present tenant, in numbers, up to a bound: due launches of
-- its lane, messages of its Kafka partition, what runs in its queue, of the tenant there, and of the
-- tenant (only where a cap asks for it); and where it waits itself.
create function explain_counts(launch uuid, slot timestamptz, most int)
returns table (relay_ahead bigint, kafka_ahead bigint, queue_running bigint, part_running bigint,
               tenant_running bigint, waits jsonb)
language sql stable security definer set search_path = pg_catalog, public as $$
  with l as (
    select t.*, i.kafka_partitions as k
    from public.launches t, public.installation i
    where t.scheduled_at = slot and t.id = launch
      and t.tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid
  )
  select
    (select count(*) from (
       select from public.launches o
       where o.partition = l.partition and o.queue = l.queue and o.priority = l.priority
         and o.phase = 1 and o.due_at <= now() and (o.due_at, o.id) < (l.due_at, l.id)
       limit most) a),
    (select count(*) from (
       select from public.partitions p
       join public.launches o on o.partition = p.partition
       where p.partition % l.k = l.partition % l.k and o.phase = 2 and o.state = 'queued'
         and o.queue = l.queue and (o.attempt > 1) = (l.attempt > 1)
         and (l.attempt > 1 or o.priority = l.priority)
         and (o.queued_at, o.id) < (l.queued_at, l.id)
       limit most) a),
    r.queue_running, r.part_running, r.tenant_running,
    (select coalesce(jsonb_agg(jsonb_build_object(
         'shared', h.tenant_id <> l.tenant_id, 'kind', h.scope, 'reason', h.reason)), '[]')
     from public.holds h
     where h.claim is null and h.launch_id = l.id and h.attempt = l.attempt
       and (h.tenant_id, h.scope, h.name) in (
         ('00000000-0000-0000-0000-000000000000'::uuid, 'queue', l.queue),
         (l.tenant_id, 'queue', l.queue), (l.tenant_id, 'tenant', ''),
         (l.tenant_id, 'key', l.concurrency_key)))
  from l
  cross join lateral (
    select count(*) filter (where o.queue = l.queue) as queue_running,
           count(*) filter (where o.queue = l.queue and o.tenant_id = l.tenant_id) as part_running,
           count(*) filter (where o.tenant_id = l.tenant_id) as tenant_running
    from public.launches o
    where o.phase = 2 and o.state = 'running' and exists (
      select from public.limits x
      where x.max_running is not null
        and x.tenant_id in (l.tenant_id, '00000000-0000-0000-0000-000000000000'::uuid)
        and ((x.scope = 'queue' and x.name = l.queue) or (x.scope = 'tenant' and x.name = '')))
  ) r
$$;
revoke all on function explain_counts(uuid, timestamptz, int) from public;
grant execute on function explain_counts(uuid, timestamptz, int) to tickrail_api;

-- Messages that no worker could read. They belong to no tenant.
create table undecodable (
  id text collate "C" primary key,
  queue text collate "C" not null,
  topic text not null,
  partition int not null,
  "offset" bigint not null,
  value bytea not null,
  size int not null,
  error text not null,
  at timestamptz not null default now()
);
create index undecodable_at on undecodable (at, id);
alter table undecodable enable row level security;
alter table undecodable force row level security;
create policy api_operator on undecodable to tickrail_api
  using (is_operator()) with check (is_operator());
create policy engine on undecodable to tickrail_engine using (true) with check (true);
create policy owner on undecodable to current_user using (true) with check (true);
grant select, delete on undecodable to tickrail_api;
grant select, insert, update, delete on undecodable to tickrail_engine;

-- Since when a launch is among the dead letters: null for one that did not end so, was redriven or
-- purged. The index finds them without mentioning the state, which every move would have to write.
alter table launches add column dead_at timestamptz;
update launches set dead_at = finished_at where state in ('dead', 'abandoned');
create index launches_dead on launches (tenant_id, dead_at, id) where dead_at is not null;

do $$
declare
  t text;
begin
  foreach t in array array['limits', 'holds', 'launch_logs'] loop
    execute format('alter table %I enable row level security', t);
    execute format('alter table %I force row level security', t);
    execute format('create policy engine on %I to tickrail_engine using (true) with check (true)', t);
    execute format('create policy owner on %I to current_user using (true) with check (true)', t);
  end loop;
end
$$;
create policy api on launch_logs to tickrail_api
  using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)
  with check (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
create policy api on limits to tickrail_api
  using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)
  with check (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
-- A tenant sees what holds it back, the installation's limits among it.
create policy api_shared on limits for select to tickrail_api
  using (tenant_id = '00000000-0000-0000-0000-000000000000');
create policy api_operator on limits to tickrail_api
  using (is_operator()) with check (is_operator());
create policy api on holds for select to tickrail_api
  using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
grant select, insert, update, delete on limits, holds, launch_logs to tickrail_engine;
grant select, insert, update, delete on limits to tickrail_api;
grant select on holds, launch_logs to tickrail_api;

-- The history's days have logs, too.
create or replace function make_day(day date) returns void
language plpgsql security definer set search_path = pg_catalog, public as $$
declare
  t text;
  child text;
begin
  perform pg_advisory_xact_lock(hashtext('tickrail.make_day'));
  foreach t in array array['launches', 'attempts', 'skips', 'launch_logs'] loop
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

create or replace function drop_day(day date) returns boolean
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
  foreach t in array array['launches', 'attempts', 'skips', 'launch_logs'] loop
    execute format('drop table if exists public.%I', format('%s_%s', t, to_char(day, 'YYYYMMDD')));
  end loop;
  return true;
end
$$;

select make_day(to_date(right(c.relname, 8), 'YYYYMMDD'))
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'public.launches'::regclass;
