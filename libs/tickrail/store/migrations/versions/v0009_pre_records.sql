-- What is kept of changes and of deleted jobs: how it is found, and how it goes.

set local lock_timeout = '5s';

-- The audit log by what people ask of it. Each index ends as its order does, so that a page reads
-- what it shows and no more.
create index audit_log_subject on audit_log (tenant_id, subject, at, id);
create index audit_log_actor on audit_log (tenant_id, actor, at, id);
create index audit_log_action on audit_log (tenant_id, action, at, id);
create index audit_log_request on audit_log (tenant_id, request_id, at, id);
create index audit_log_installation on audit_log (at, id) where tenant_id is null;

-- The entries of no tenant, for operators. A view and not a policy: with a second condition beside
-- it, no index would serve that of the tenants. Not a barrier, which would keep its index from
-- serving the order: who asks is looked at once, before any row is.
create view installation_audit as
select id, at, actor, action, subject, before, after, request_id, address
from audit_log
where tenant_id is null and is_operator();
grant select on installation_audit to tickrail_api;

-- Removes the oldest entries, before an id: ids begin with their time. Nobody else can remove any.
create function purge_audit(before uuid, most int) returns int
language sql volatile security definer set search_path = pg_catalog, public as $$
  with old as (
    select a.id from public.audit_log a where a.id < $1 order by a.id limit $2 for update skip locked
  ), gone as (
    delete from public.audit_log a using old where a.id = old.id returning 1
  )
  select count(*)::int from gone
$$;
revoke all on function purge_audit(uuid, int) from public;
grant execute on function purge_audit(uuid, int) to tickrail_engine;

-- Deleted jobs by age, and by the name that they had. Indexes of live jobs are written by every
-- tick; these are not.
create index jobs_deleted on jobs (deleted_at, id) where state = 'deleted';
create index jobs_deleted_name on jobs (tenant_id, name, id) where state = 'deleted';
