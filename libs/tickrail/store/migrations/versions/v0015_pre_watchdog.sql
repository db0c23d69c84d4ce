-- When a job must have succeeded at the latest; the trace that a launch belongs to.

set local lock_timeout = '5s';

-- A job with `on_failures.expect_success_every`: when the watchdog looks for a success next, and
-- since when there was none for too long, where it has told so. The index holds these jobs alone.
alter table jobs add column expect_success_every interval;
alter table jobs add column success_due_at timestamptz;
alter table jobs add column silent_since timestamptz;
create index jobs_success_due on jobs (success_due_at) where success_due_at is not null;

-- Schedulers count the keys in use that are about to end.
grant select (last_used_at, replaced_by) on api_keys to tickrail_engine;

-- A W3C traceparent; null for most, since traces are sampled.
alter table launches add column trace text collate "C";
