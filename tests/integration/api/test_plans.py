"""What the API reads at size: every statement of its read paths finds its rows by an index.

The plans are those of the API's role under row security, on a set that is large enough for the
planner to care. A plan that scans a table from end to end, or sorts rows without a bound on how
many, is a fault here, since it is one as soon as a tenant grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection
from tests.support.api import World
from tests.support.database import Database

from tickrail.core.ids import TenantId
from tickrail.store.tenancy import Caller as Who
from tickrail.store.tenancy import installation_transaction, tenant_transaction

pytestmark = pytest.mark.integration
FEW = 1000
"""Rows of a table, or of a sort, that may be read whole: the planner would be wrong not to."""
TENANTS, JOBS = 20, 300

SEED = (
    """
insert into tenants (id, name)
select ('00000000-0000-7000-8000-0000000001' || lpad(to_hex(n), 2, '0'))::uuid, 'more-' || n
from generate_series(1, %(tenants)s) n
""",
    """
insert into jobs (id, tenant_id, name, partition, state, plan, created_at, updated_at, deleted_at)
select gen_random_uuid(), t.id, 'job-' || lpad((n * 7919 %% 1000003)::text, 7, '0'), n %% 4,
       s.state, %(plan)s::jsonb, now() - (n / 7) * interval '1 minute',
       now() - n * interval '1 minute',
       case when s.state = 'deleted' then now() - n * interval '1 minute' end
from tenants t, generate_series(1, %(jobs)s) n
cross join lateral (select case when n %% 20 = 0 then 'paused' when n %% 9 = 0 then 'deleted'
  else 'active' end as state) s
where t.name like 'more-%%' or t.name = 'acme'
""",
    """
insert into job_versions (job_id, version, tenant_id, definition)
select id, v, tenant_id, %(document)s::jsonb || jsonb_build_object('name', name)
from jobs, generate_series(1, 3) v
on conflict do nothing
""",
    "update jobs set version = 3",
    """
insert into job_tags (job_id, tenant_id, key, value)
select id, tenant_id, k, 'team-' || abs(hashtext(id::text)) %% 10
from jobs, unnest(array['team', 'tier']) k
""",
    "select make_day((now() - n * interval '1 d')::date) from generate_series(-1, 4) n",
    """
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, max_attempts, rerun, visibility, due_at, epoch, finished_at, dead_at)
select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '8'
         || substr(md5(id::text || day), 1, 3) || '8' || substr(md5(id::text || day), 4, 15))::uuid,
       at, tenant_id, id, 3, partition, 'default', 1, 'schedule',
       case when dead then 'dead' else 'succeeded' end, 3, 5, true, 30, at, 1, at,
       case when dead then at end
from jobs
cross join generate_series(0, 2) day
cross join lateral (select
  date_trunc('second', now() - day * interval '1 day'
    - abs(hashtext(id::text)) %% 3600 * interval '1 s') as at,
  abs(hashtext(id::text || day)) %% 20 = 0 as dead) x
""",
    """
insert into attempts (launch_id, scheduled_at, tenant_id, attempt, outcome, certain)
select id, scheduled_at, tenant_id, 1, 'http_500', true from launches where dead_at is not null
""",
    """
insert into skips (job_id, scheduled_at, last_at, tenant_id, count, reason)
select job_id, scheduled_at + interval '1 s', scheduled_at + interval '1 s', tenant_id, 1, 'paused'
from launches
""",
    """
insert into audit_log (id, tenant_id, at, actor, action, subject, request_id)
select gen_random_uuid(), case when day = 0 then tenant_id end, created_at,
       'key:' || abs(hashtext(id::text)) %% 7, 'job.change', 'job:' || id, 'r-' || id
from jobs, generate_series(0, 1) day
""",
    "analyze",
)


@pytest.fixture
def filled(world: World, database: Database) -> World:
    """Jobs of many tenants with versions, tags, launches of four days, skips and audit entries."""
    world.acme.create("sample", schedule={"every": "1h"})
    [(document, plan)] = world.database.rows(
        "select v.definition::text, j.plan::text from jobs j join job_versions v on v.job_id = j.id"
    )
    world.acme.delete("/v1/jobs/name:sample")
    given = {"tenants": TENANTS, "jobs": JOBS, "plan": plan, "document": document}
    with database.admin() as conn:
        for statement in SEED:
            conn.execute(statement.encode(), given)
    return world


@contextmanager
def told(engine: Any) -> Iterator[dict[str, Any]]:
    """Every statement that the API's connections run meanwhile, with its parameters."""
    found: dict[str, Any] = {}

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement.lstrip().lower().startswith(("select", "with")):
            found.setdefault(statement, parameters)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def nodes(
    plan: dict[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Each node of a plan, with the types of those above it."""
    yield plan, above
    for child in plan.get("Plans", ()):
        yield from nodes(child, (plan["Node Type"], *above))


def faults(plan: dict[str, Any], large: set[str]) -> list[str]:
    """What a plan does that grows with a table; `large`: those that have grown."""
    found = []
    for node, above in nodes(plan):
        kind = node["Node Type"]
        if kind == "Seq Scan" and node["Relation Name"] in large:
            found.append(f"scans {node['Relation Name']} from end to end")
        # Under a limit, a sort keeps as many rows as are asked for.
        if kind == "Sort" and "Limit" not in above and node["Plan Rows"] > FEW:
            found.append(f"sorts {node['Plan Rows']} rows by {node['Sort Key']}")
    return found


def large_tables(world: World) -> set[str]:
    """The tables, and days of tables, that hold more than a few rows."""
    rows = world.database.rows(
        "select relname from pg_class where relkind = 'r' and reltuples > %s", FEW
    )
    return {str(row[0]) for row in rows}


def read_jobs(world: World) -> None:
    """Lists of jobs with each sort and filter, and what is read of one."""
    acme = world.acme
    paused = acme.get("/v1/jobs", state="paused", limit=1)["items"][0]
    job = f"/v1/jobs/{paused['id']}"
    for sort in ("created_at", "-created_at", "name", "-name"):
        cursor = acme.get("/v1/jobs", limit=50, sort=sort)["next_cursor"]
        acme.get("/v1/jobs", limit=50, sort=sort, cursor=cursor)
        for filters in (
            {"state": "paused"},
            {"state": "deleted"},
            {"state": ["active", "deleted"]},
            {"tag": ["team:team-3", "tier"]},
            {"name_prefix": "job-01"},
            {"queue": "default"},
            {"from": paused["created_at"], "updated_to": paused["created_at"]},
        ):
            acme.get("/v1/jobs", limit=50, sort=sort, **filters)
    for rest in ("", "/versions", "/versions/2", "/slots", "/upcoming", "/backfills"):
        acme.get(f"{job}{rest}")
    acme.get(f"/v1/jobs/name:{paused['name']}")


def read_launches(world: World) -> None:
    """Lists of launches and dead letters, and what is read of one."""
    acme = world.acme
    paused = acme.get("/v1/jobs", state="paused", limit=1)["items"][0]
    for sort in ("scheduled_at", "-scheduled_at"):
        cursor = acme.get("/v1/launches", limit=50, sort=sort)["next_cursor"]
        acme.get("/v1/launches", limit=50, sort=sort, cursor=cursor)
        for filters in (
            {"job": paused["id"]},
            {"state": "dead"},
            {"state": "due"},
            {"tag": "team:team-3"},
            {"queue": "default"},
            {"origin": "manual"},
            {"from": paused["created_at"]},
        ):
            acme.get("/v1/launches", limit=50, sort=sort, **filters)
    dead = acme.get("/v1/dead-letters", limit=1)["items"][0]["id"]
    acme.get(f"/v1/dead-letters/{dead}")
    for rest in ("", "/attempts", "/log", "/explain"):
        acme.get(f"/v1/launches/{dead}{rest}")


def read_audit(world: World) -> None:
    """The audit log of a tenant and of the installation, by each of what it says."""
    acme = world.acme
    newest = acme.get("/v1/audit-log", limit=1)["items"][0]
    for caller in (acme, world.operator):
        for sort in ("at", "-at"):
            cursor = caller.get("/v1/audit-log", limit=50, sort=sort)["next_cursor"]
            caller.get("/v1/audit-log", limit=50, sort=sort, cursor=cursor)
            for name in ("actor", "action", "subject", "request_id"):
                caller.get("/v1/audit-log", sort=sort, limit=50, **{name: newest[name] or "r"})
            caller.get("/v1/audit-log", sort=sort, limit=50, **{"from": newest["at"]})


def test_every_statement_that_reads_finds_its_rows_by_an_index(filled: World) -> None:
    engine = filled.app.state.parts.database.engine
    with told(engine) as statements:
        for read in (read_jobs, read_launches, read_audit):
            read(filled)
        for path in ("calendars", "secrets", "operations", "queues", "api-keys", "usage", "quotas"):
            filled.acme.get(f"/v1/{path}")
    assert len(statements) > 50
    tenant, large = TenantId(UUID(filled.tenant_id("acme"))), large_tables(filled)
    wrong: dict[str, list[str]] = {}
    for statement, parameters in statements.items():
        door = (
            installation_transaction(engine, operator=True)
            if "installation_audit" in statement
            else tenant_transaction(engine, tenant, Who("t"))
        )
        with door as tx:
            raw: Connection = tx._connection
            rows = raw.exec_driver_sql(f"explain (format json) {statement}", parameters)
            found = faults(rows.scalar_one()[0]["Plan"], large)
        if found:
            wrong[statement] = found
    assert wrong == {}, "\n\n".join(f"{k}\n{v}" for k, v in wrong.items())


LAG_SEED = """
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, max_attempts, rerun, visibility, due_at, epoch, queued_at)
select gen_random_uuid(), date_trunc('second', now()) - n %% 2 * interval '1 d', %(tenant)s,
  gen_random_uuid(), 1, n %% 64, 'default', n %% 3, 'schedule', s.state, s.phase, 5, true, 30,
  now() - interval '1 s', 1, now()
from generate_series(1, %(ended)s) n
cross join lateral (select case when n > %(open)s then 3 when n %% 2 = 0 then 1 else 2 end as phase,
  case when n > %(open)s then 'succeeded' when n %% 2 = 0 then 'due' else 'queued' end as state) s
"""


def test_how_far_behind_all_queues_are_is_read_by_the_index_of_open_launches(
    world: World, database: Database
) -> None:
    """It costs what waits and runs, and nothing of the history."""
    with database.admin() as conn:
        conn.execute("select make_day((now() - n * interval '1 d')::date) from"
                     " generate_series(-1, 2) n")  # fmt: skip
        given = {"tenant": world.keys["acme"].tenant, "ended": 40_000, "open": 6_000}
        conn.execute(LAG_SEED.encode(), given)
        conn.execute("analyze launches")
        conn.execute("select set_config('tickrail.operator', 'on', false)")
        conn.execute("set role tickrail_owner")  # whose rights the function has
        [(body,)] = conn.execute("select prosrc from pg_proc where proname = 'work_lag'").fetchall()
        [(plan,)] = conn.execute(f"explain (format json) {body}".encode()).fetchall()
    assert faults(plan[0]["Plan"], large_tables(world)) == []  # type: ignore[index]
    lag = world.operator.get("/v1/system/lag")
    assert sum(item["due"] for item in lag["items"]) == 3_000
    assert sum(item["queued"] for item in lag["items"]) == 3_000


def test_a_scan_and_a_sort_are_seen() -> None:
    scan = {"Node Type": "Seq Scan", "Relation Name": "jobs"}
    sort = {"Node Type": "Sort", "Sort Key": ["name"], "Plan Rows": FEW + 1}
    assert faults({"Node Type": "Append", "Plans": [scan]}, {"jobs"})
    assert not faults(scan, {"launches"})
    assert faults({**sort, "Plans": []}, set())
    assert not faults({**sort, "Plan Rows": FEW}, set())
    assert not faults({"Node Type": "Limit", "Plans": [sort]}, set())
