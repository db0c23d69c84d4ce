-- A day of the history is made and dropped so that nobody waits for it.

set local lock_timeout = '5s';

-- `create table ... partition of` and `drop table` of a partition lock the whole history against
-- everybody, readers too, and whoever comes meanwhile waits behind them: behind a long read, such as
-- a backup, all the work stood still until a timeout. So a day is made by itself and attached, which
-- stands in nobody's way.
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
        'create table public.%I (like public.%I including all)%s', child, t,
        case when t = 'launches' then ' with (fillfactor = 70, '
          || 'autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000)'
          else '' end);
      execute format(
        'alter table public.%I attach partition public.%I for values from (%L) to (%L)', t, child,
        day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
    end if;
  end loop;
end
$$;

-- A drop does need the whole history for a moment. It gives up soon, and whoever keeps the history
-- tries again later; the tables of which most is asked are locked last. What is open is looked for
-- twice, since a launch may be given another life in between.
create or replace function drop_day(day date) returns boolean
language plpgsql security definer set search_path = pg_catalog, public as $$
declare
  t text;
  child text := format('launches_%s', to_char(day, 'YYYYMMDD'));
  busy boolean;
  -- Each by its own partial index: for both at once the whole day might be read.
  busy_query text := format('select exists (select from public.%1$I where phase < 3)'
    || ' or exists (select from public.%1$I where dlq_owed)', child);
begin
  set local lock_timeout = '100ms';
  perform pg_advisory_xact_lock(hashtext('tickrail.make_day'));
  if to_regclass(format('public.%I', child)) is null then
    return false;
  end if;
  execute busy_query into busy;
  if busy then
    return false;
  end if;
  foreach t in array array['launch_logs', 'skips', 'attempts', 'launches'] loop
    execute format('lock table only public.%I in access exclusive mode', t);
  end loop;
  execute busy_query into busy;
  if busy then
    return false;
  end if;
  foreach t in array array['launches', 'attempts', 'skips', 'launch_logs'] loop
    execute format('drop table if exists public.%I', format('%s_%s', t, to_char(day, 'YYYYMMDD')));
  end loop;
  return true;
end
$$;
