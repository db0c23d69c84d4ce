-- What the rules of time need beside a schedule. Everything is additive, except that the tables of
-- backfills and operations get their columns: no release has written to them.

set local lock_timeout = '5s';

-- skip_next: so many of the next slots are left out by hand.
-- catch_up: after a resume, the bounds within which slots that passed are launched.
-- awaits: the next run is measured from the end of the open one, which is still to come.
alter table jobs
  add column skip_next int not null default 0 check (skip_next >= 0),
  add column catch_up jsonb,
  add column awaits boolean not null default false;
create index jobs_awaiting on jobs (partition) where awaits;

-- The relay looks for what is due class by class.
drop index launches_due;
create index launches_due on launches (partition, queue, priority, tenant_id, due_at)
  where phase = 1;

-- Which calendars a job names, so that a change of one finds its jobs.
create table job_calendars (
  job_id uuid not null references jobs (id),
  tenant_id uuid not null references tenants (id),
  calendar text collate "C" not null,
  primary key (job_id, calendar)
);
create index job_calendars_find on job_calendars (tenant_id, calendar, job_id);

alter table calendars add column created_at timestamptz not null default now();

-- A past range of a job's slots to launch. cursor_at: the last slot that was dealt with.
drop table backfills;
create table backfills (
  id uuid primary key,
  tenant_id uuid not null references tenants (id),
  job_id uuid not null references jobs (id),
  partition smallint not null,
  state text not null check (state in ('running', 'finished', 'cancelled')),
  from_at timestamptz not null,
  until_at timestamptz not null check (until_at > from_at),
  newest_first boolean not null default false,
  existing text not null default 'leave' check (existing in ('leave', 'launch')),
  max_count int check (max_count > 0),
  max_open int not null check (max_open > 0),
  per_minute int check (per_minute > 0),
  payload jsonb,
  has_payload boolean not null default false,
  cursor_at timestamptz,
  next_at timestamptz not null default now(),
  total bigint not null,
  launched bigint not null default 0,
  left_alone bigint not null default 0,
  reason text not null default '',
  created_by text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  finished_at timestamptz
);
create index backfills_job on backfills (job_id, id);
create index backfills_running on backfills (partition, next_at) where state = 'running';

-- Work on many rows, done in steps by whichever API process holds it.
drop table operations;
create table operations (
  id uuid primary key,
  tenant_id uuid not null references tenants (id),
  kind text not null,
  state text not null check (state in ('running', 'finished', 'cancelled', 'failed')),
  request jsonb not null,
  position jsonb,
  total bigint not null default 0,
  done bigint not null default 0,
  changed bigint not null default 0,
  failed bigint not null default 0,
  errors jsonb not null default '[]',
  created_by text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  finished_at timestamptz,
  held_until timestamptz
);
create index operations_tenant on operations (tenant_id, created_at, id);
create index operations_running on operations (created_at) where state = 'running';

-- An operation that nobody works at, taken for a while; it is found before its tenant is known.
create function take_operation(hold interval) returns table (id uuid, tenant_id uuid)
language sql volatile security definer set search_path = pg_catalog, public as $$
  update public.operations o set held_until = now() + hold
  where o.id = (
    select p.id from public.operations p
    join public.tenants t on t.id = p.tenant_id and t.state = 'active'
    where p.state = 'running' and (p.held_until is null or p.held_until < now())
    order by p.created_at
    limit 1
    for update of p skip locked)
  returning o.id, o.tenant_id
$$;

-- The version of the zone data by which a partition's next runs were computed, and what a newer
-- one moved.
alter table partitions add column tzdata text not null default '';
update partitions set tzdata = (select tzdata from installation);
create table tzdata_changes (
  job_id uuid not null references jobs (id),
  tenant_id uuid not null references tenants (id),
  changed_at timestamptz not null default now(),
  from_version text not null,
  to_version text not null,
  before_at timestamptz,
  after_at timestamptz,
  primary key (job_id, changed_at)
);
create index tzdata_changes_tenant on tzdata_changes (tenant_id, changed_at, job_id);
create index tzdata_changes_all on tzdata_changes (changed_at, job_id);

-- How many active jobs of the transaction's tenant wait for one instant. No index begins with the
-- tenant and the instant, since each tick would write it; so the instant is looked up in each
-- partition, whoever's jobs are there, up to a bound.
create function count_waiting(at timestamptz, most int) returns int
language sql stable security definer set search_path = pg_catalog, public as $$
  select count(*)::int from (
    select from (
      select j.tenant_id
      from public.partitions p
      cross join lateral (
        select tenant_id from public.jobs
        where partition = p.partition and state = 'active' and next_run_at = at
        limit 10000
      ) j
      limit 10000
    ) waiting
    where tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid
    limit most
  ) mine
$$;

-- Operators see what moved in the jobs of every tenant, the newest first.
create function list_tzdata_changes(before timestamptz, job uuid, most int)
returns table (changed_at timestamptz, job_id uuid, job_name text, tenant text, zones text[],
               from_version text, to_version text, before_at timestamptz, after_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public as $$
  select c.changed_at, c.job_id, j.name, t.name,
    array(select distinct z #>> '{}'
          from jsonb_path_query(j.plan, '$.schedule.**.time_zone') z order by 1),
    c.from_version, c.to_version, c.before_at, c.after_at
  from public.tzdata_changes c
  join public.jobs j on j.id = c.job_id
  join public.tenants t on t.id = c.tenant_id
  where before is null or (c.changed_at, c.job_id) < (before, job)
  order by c.changed_at desc, c.job_id desc
  limit most
$$;

do $$
declare
  t text;
begin
  foreach t in array array['job_calendars', 'backfills', 'operations', 'tzdata_changes'] loop
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

revoke all on function take_operation(interval), count_waiting(timestamptz, int),
  list_tzdata_changes(timestamptz, uuid, int) from public;
grant execute on function take_operation(interval), count_waiting(timestamptz, int),
  list_tzdata_changes(timestamptz, uuid, int) to tickrail_api;
grant select, insert, update on operations, backfills to tickrail_api;
grant select, insert, update, delete on job_calendars to tickrail_api;
grant select on tzdata_changes to tickrail_api;
grant select, insert, update, delete on job_calendars, backfills, operations, tzdata_changes
  to tickrail_engine;
