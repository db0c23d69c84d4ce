-- Old records are found by their age, in batches; a deleted tenant gives its name away.

set local lock_timeout = '5s';

-- What is removed by its age is found by it. Written when a record ends, and not before.
create index backfills_ended on backfills (finished_at, id) where finished_at is not null;
create index operations_ended on operations (finished_at, id) where finished_at is not null;
create index api_keys_ended on api_keys (least(revoked_at, expires_at), id)
  where least(revoked_at, expires_at) is not null;
-- To remove a batch, its rows are named.
grant select (id) on api_keys to tickrail_engine;
grant select (key) on operator_answers to tickrail_engine;

-- A deleted tenant gives its name away to a new one, and has another from then on.
grant update (name) on tenants to tickrail_api;
