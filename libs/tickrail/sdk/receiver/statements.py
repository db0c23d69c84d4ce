"""The statements of `PostgresStore`."""

from __future__ import annotations

DDL = """\
create table if not exists {table} (
  key text primary key,
  fence bigint not null,
  holder bigint not null,
  state text not null check (state in ('started', 'done', 'free')),
  lease_until timestamptz not null,
  expires_at timestamptz not null,
  status int,
  headers text,
  body bytea
);
create index if not exists {index} on {table} (expires_at);
"""
"""`fence`: the highest that was seen. `holder`: that of the delivery that holds the key, or held it
last. `free`: abandoned. `status`, `headers` (JSON) and `body`: the answer of a key that is done.
Keys belong into the same backups as the effects."""

LATER = "clock_timestamp() + make_interval(secs => %s)"
STATEMENTS = {
    "lock_wait": "select set_config('lock_timeout', %s, true)",
    "start": "insert into {t} (key, fence, holder, state, lease_until, expires_at)"
    " values (%s, %s, %s, 'started', {later}, {later}) on conflict (key) do nothing",
    "look": "select fence, holder, state,"
    " extract(epoch from lease_until - clock_timestamp())::float8, status, headers, body"
    " from {t} where key = %s for update",
    "take": "update {t} set fence = greatest(fence, %s), holder = %s, state = 'started',"
    " lease_until = {later}, expires_at = {later} where key = %s",
    "see": "update {t} set fence = %s where key = %s",
    "finish": "update {t} set state = 'done', status = %s, headers = %s, body = %s,"
    " expires_at = {later} where key = %s and holder = %s and state <> 'free'",
    "abandon": "update {t} set state = 'free' where key = %s and holder = %s and state = 'started'",
    "start_done": "insert into {t} (key, fence, holder, state, lease_until, status, headers, body,"
    " expires_at) values (%s, %s, %s, 'done', clock_timestamp(), %s, %s, %s, {later})"
    " on conflict (key) do nothing",
    "take_done": "update {t} set fence = greatest(fence, %s), holder = %s, state = 'done',"
    " status = %s, headers = %s, body = %s, expires_at = {later} where key = %s",
    "purge": "delete from {t} where key in (select key from {t}"
    " where expires_at < clock_timestamp() order by expires_at limit %s for update skip locked)",
}
"""`{t}` is the table, whose name was checked, `{later}` an instant; nothing else enters a text."""
