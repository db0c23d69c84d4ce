-- What the API sends with a commit, and how crowded an instant is: by calls that cost less.

set local lock_timeout = '5s';

-- Adds entries of a caller to the audit log, and wakes schedulers at the commit where that is
-- wanted. The driver writes it and the commit out as one text; in this language the plan of the
-- insert is kept by the session all the same.
create function leave_audit(tenant uuid, actor text, request_id text, address text, entries json,
                            wake boolean)
returns void
language plpgsql as $$
begin
  insert into public.audit_log (id, tenant_id, actor, action, subject, before, after, request_id,
    address)
  select e.id, tenant, leave_audit.actor, e.action, e.subject, e.before, e.after,
    leave_audit.request_id, leave_audit.address
  from json_to_recordset(entries)
    as e (id uuid, action text, subject text, before jsonb, after jsonb);
  if wake then
    perform pg_notify('tickrail_wake', '');
  end if;
end
$$;
revoke all on function leave_audit(uuid, text, text, text, json, boolean) from public;
grant execute on function leave_audit(uuid, text, text, text, json, boolean) to tickrail_api;

-- As before, how many active jobs of the transaction's tenant wait for one instant, counted up to
-- `most`. The index of due jobs has their tenants by now, so no other's are looked at. And of a
-- thousand or more, one partition in sixteen is looked at first. Ids are spread evenly: of such a
-- crowd 62 or more are to be expected there, and fewer than 20 would be found once in 10 to the
-- power of 10 times. Where there are fewer, these are all that is told of.
create or replace function count_waiting(at timestamptz, most int) returns int
language sql stable security definer set search_path = pg_catalog, public as $$
  select case when most >= 1000 and sample.seen < 20 then sample.seen else (
    select count(*)::int from (
      select from public.partitions p
      cross join lateral (
        select from public.jobs
        where partition = p.partition and state = 'active' and next_run_at = at
          and tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid
        limit most
      ) j
      limit most
    ) mine
  ) end
  from (
    select count(*)::int as seen from (
      select from public.partitions p
      cross join lateral (
        select from public.jobs
        where partition = p.partition and state = 'active' and next_run_at = at
          and tenant_id = nullif(current_setting('tickrail.tenant', true), '')::uuid
        limit 20
      ) j
      where p.partition % 16 = 0
      limit 20
    ) looked_at
  ) sample
$$;
