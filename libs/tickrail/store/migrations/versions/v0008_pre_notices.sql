-- Notices of launches that were given up, and who gets them.

set local lock_timeout = '5s';

-- What a tenant is told outside: a row for each channel, written in the transaction of what it tells
-- of, delivered by workers. `due_at` of one that is being delivered is when its hold ends.
create table notices (
  id uuid primary key default gen_random_uuid(),
  tenant_id uuid not null references tenants (id),
  kind text collate "C" not null,
  about text collate "C" not null,
  channel text collate "C" not null,
  said text not null,
  data jsonb not null,
  suppressed int not null default 0,
  minute timestamptz not null,
  state text not null default 'pending' check (state in ('pending', 'delivered', 'given_up')),
  attempts int not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  error text not null default ''
) with (fillfactor = 70);
create index notices_due on notices (tenant_id, due_at) where state = 'pending';
create index notices_minute on notices (tenant_id, about, channel, minute);
create unique index notices_summary on notices (tenant_id, about, channel, minute)
  where suppressed > 0;
create index notices_age on notices (created_at);

alter table notices enable row level security;
alter table notices force row level security;
create policy api on notices to tickrail_api
  using (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid)
  with check (tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid);
create policy engine on notices to tickrail_engine using (true) with check (true);
create policy owner on notices to current_user using (true) with check (true);
grant select, insert, update, delete on notices to tickrail_engine;

-- Keeps one notice for a channel. Those of one kind about one thing beyond `most` in a minute are
-- counted in one more, which is due when the minute is over. The lock makes the count exact; whoever
-- adds many adds them in the order of `about`.
create function add_notice(tenant uuid, kind text, about text, channel text, said text, data jsonb,
                           most int) returns void
language plpgsql set search_path = pg_catalog, public as $$
#variable_conflict use_column
declare
  this timestamptz;
begin
  perform pg_advisory_xact_lock(hashtextextended(tenant::text || about, 4711));
  this := date_trunc('minute', clock_timestamp(), 'UTC');
  if (select count(*) from public.notices n
      where n.tenant_id = $1 and n.about = $3 and n.channel = $4 and n.minute = this
        and n.kind = $2 and n.suppressed = 0) < most then
    insert into public.notices (tenant_id, kind, about, channel, said, data, minute)
    values ($1, $2, $3, $4, $5, $6, this);
  else
    insert into public.notices as n (tenant_id, kind, about, channel, said, data, minute, suppressed,
                                     due_at)
    values ($1, 'notices.suppressed', $3, $4, $5, $6, this, 1, this + interval '65 seconds')
    on conflict (tenant_id, about, channel, minute) where suppressed > 0 do update
    set suppressed = n.suppressed + 1, said = excluded.said, data = excluded.data;
  end if;
end
$$;
revoke all on function add_notice(uuid, text, text, text, text, jsonb, int) from public;
grant execute on function add_notice(uuid, text, text, text, text, jsonb, int) to tickrail_engine;

-- Since when a job's launches count towards its `pause_after`: a job that was resumed begins anew.
alter table jobs add column failures_from timestamptz;
