-- What the API asks at the beginning of a transaction, asked by one call.

set local lock_timeout = '5s';

-- Makes the transaction that of a tenant (empty: of none), an operator's if so said, and tells its
-- instant. In this language the plans of what is inside are kept by the session, also where no
-- statements can be prepared.
create function begin_api(tenant text, operator text) returns timestamptz
language plpgsql as $$
begin
  perform set_config('tickrail.tenant', tenant, true);
  perform set_config('tickrail.operator', operator, true);
  return now();
end
$$;

-- The same for a transaction that makes jobs, with what it needs to know first: the kinds of the
-- queues that there are of these, whose rows are shared until it ends; the quotas of the tenant and,
-- under the zero tenant, of the installation; the tenant's egress lists.
create function begin_jobs(tenant uuid, queue_names text[],
                           out began timestamptz, out kinds json, out amounts json, out lists jsonb)
language plpgsql as $$
begin
  began := public.begin_api(tenant::text, '');
  select json_object_agg(q.name, q.kinds) into kinds from (
    select name, queues.kinds from public.queues where name = any(queue_names)
    order by name for key share
  ) q;
  select json_agg(json_build_array(q.tenant_id, q.quota, q.amount)) into amounts
  from public.quotas q where q.tenant_id in (tenant, '00000000-0000-0000-0000-000000000000');
  select t.egress into lists from public.tenants t where t.id = tenant;
end
$$;
revoke all on function begin_api(text, text), begin_jobs(uuid, text[]) from public;
grant execute on function begin_api(text, text), begin_jobs(uuid, text[]) to tickrail_api;
