-- How long the job that is due longest waits for its tick, in seconds; 0 where none is due. The API
-- asks for it, which sees no tenant's jobs and no scheduler's metrics. Jobs of a tenant that is not
-- active wait by intention; so many of them at the head of a partition hide the others behind them.

set local lock_timeout = '5s';

create function overdue_seconds() returns double precision
language sql stable security definer set search_path = pg_catalog, public as $$
  select coalesce(greatest(0, extract(epoch from clock_timestamp() - min(j.next_run_at))), 0)
  from public.partitions p
  cross join lateral (
    select tenant_id, next_run_at from public.jobs
    where partition = p.partition and state = 'active' and next_run_at <= now()
    order by next_run_at
    limit 1000
  ) j
  where exists (select from public.tenants t where t.id = j.tenant_id and t.state = 'active')
$$;

revoke all on function overdue_seconds() from public;
grant execute on function overdue_seconds() to tickrail_api;
