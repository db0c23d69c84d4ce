-- A sample of jobs. Parameters are psycopg's (`%(name)s`).

-- name: jobs_in_all
-- About how many jobs there are: what the last analyze counted, or what there is room for.
select greatest(c.reltuples, 0)::bigint from pg_class c where c.oid = 'public.jobs'::regclass

-- name: sample
-- Active jobs of these partitions that are due within a time, from a part of the table's pages.
select j.id, j.plan::text, j.next_run_at, now()
from jobs j tablesample system (%(percent)s)
where j.state = 'active' and j.partition = any(%(owned)s)
  and j.next_run_at < now() + %(ahead)s
limit %(most)s
