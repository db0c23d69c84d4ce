-- What a crowd leaves behind is not read by who looks for deadlines or for what is due longest.

set local lock_timeout = '5s';

-- Statistics of few jobs say that a tenant has one. Until they are gathered anew, each batch of names
-- was then looked for among all jobs of the tenant that it filled, and not in the index of names.
alter table jobs alter column tenant_id set (n_distinct = -0.001);
analyze jobs (tenant_id);

-- As before: how long the job that is due longest waits for its tick, in seconds. In each partition
-- the first job of an active tenant is enough; up to a thousand were read.
create or replace function overdue_seconds() returns double precision
language sql stable security definer set search_path = pg_catalog, public as $$
  select coalesce(greatest(0, extract(epoch from clock_timestamp() - min(j.next_run_at))), 0)
  from public.partitions p
  cross join lateral (
    select head.next_run_at
    from (
      select tenant_id, next_run_at from public.jobs
      where partition = p.partition and state = 'active' and next_run_at <= now()
      order by next_run_at
      limit 1000
    ) head
    where (select t.state from public.tenants t where t.id = head.tenant_id) = 'active'
    order by head.next_run_at
    limit 1
  ) j
$$;

-- Deadlines of starts that have passed. Without an index of its own, each look read all launches
-- since the oldest open one. Made for each day by itself, today's and those to come last: the index
-- of the whole then takes what is there, and writes wait for no longer than today's takes. Last of
-- all, since from then on they wait until the commit.
do $$
declare
  day record;
begin
  for day in
    select c.oid::regclass as child, c.relname
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'public.launches'::regclass
    order by c.relname
  loop
    execute format(
      'create index on %s (partition, start_before)'
        || ' where phase in (1, 2) and start_before is not null', day.child);
  end loop;
end
$$;
create index launches_deadline on launches (partition, start_before)
  where phase in (1, 2) and start_before is not null;
