-- How far behind the work of each queue is, for operators; which programs may run on a schema.

set local lock_timeout = '5s';

-- The oldest revision whose programs may run on this schema. A later revision that takes away what
-- they use raises it; one that only adds leaves it, and they may start again while it is rolled out.
alter table installation add column compatible text not null default '0001_pre';

-- What of each queue and class waits to be published, waits in Kafka and runs, and since when the
-- oldest waits: due, or published. Of all tenants; what waits behind a pause counts, too.
create function work_lag()
returns table (queue text, priority smallint, due bigint, queued bigint, running bigint,
               oldest_due timestamptz, oldest_queued timestamptz)
language sql stable security definer set search_path = pg_catalog, public as $$
  select l.queue, l.priority,
         count(*) filter (where l.state = 'due' and l.due_at <= now()),
         count(*) filter (where l.state = 'queued'),
         count(*) filter (where l.state = 'running'),
         min(l.due_at) filter (where l.state = 'due' and l.due_at <= now()),
         min(l.queued_at) filter (where l.state = 'queued')
  from public.launches l
  where public.is_operator() and (l.phase = 1 or l.phase = 2)
  group by l.queue, l.priority
$$;
revoke all on function work_lag() from public;
grant execute on function work_lag() to tickrail_api;
