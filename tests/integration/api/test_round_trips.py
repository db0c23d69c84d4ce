"""What a request costs in round trips to PostgreSQL, and connections that died in the pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import delete, func, select
from tests.support.api import World, api_world
from tests.support.database import Database

from tickrail.core.errors import TickrailError
from tickrail.core.ids import TenantId
from tickrail.core.lint import HERD
from tickrail.store.tables import job_tags, jobs
from tickrail.store.tenancy import Caller as Who
from tickrail.store.tenancy import tenant_transaction

JOB: dict[str, Any] = {
    "name": "a",
    "tags": {"team": "mail", "kind": "bulk"},
    "schedule": {"cron": "0 2 * * *"},
    "target": {"webhook": {"url": "http://127.0.0.8:9000/"}},
}
KILL = (
    "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
    " where datname = current_database() and usename like '%%api%%' and pid <> pg_backend_pid()"
)


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with api_world(database) as made:
        yield made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of what is sent to PostgreSQL, and the commit that goes with it."""
    found: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: psycopg.Cursor[Any], query: Any, *more: Any, **options: Any) -> Any:
        words = query.decode() if isinstance(query, bytes) else str(query)
        last = "; commit" if words.endswith("; commit") else ""
        found.append(" ".join(words.split()[:5]) + last)
        return execute(self, query, *more, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    return found


def test_a_job_is_made_in_three_round_trips(world: World, sent: list[str]) -> None:
    """With the beginning come its queue and the quotas, with the job the crowd at its next run.

    With the commit go who made it and the wake-up. The first request of a tenant finds out what the
    tenant may reach, and how many requests it may make.
    """
    world.acme.post("/v1/jobs", JOB, expect=201)
    sent.clear()
    world.acme.post("/v1/jobs", {**JOB, "name": "b"}, expect=201)
    assert sent == [
        "begin; select * from begin_jobs('{}',".format(world.tenant_id("acme")),
        "with given as ( select",
        "select leave_audit(%(tenant)s, %(actor)s, %(request_id)s, %(address)s,; commit",
    ]
    [(tags,)] = world.database.rows("select count(*) from job_tags")
    assert tags == 4


def test_only_a_job_that_is_due_soon_wakes_the_schedulers(world: World) -> None:
    far = {**JOB, "schedule": {"at": "2099-01-01T00:00:00Z"}}
    near = {**JOB, "name": "b", "schedule": {"every": "1s"}}
    heard = []
    with psycopg.connect(world.database.engine_url, autocommit=True) as conn:
        conn.execute("listen tickrail_wake; listen all_said")
        for job in (far, near):
            world.acme.post("/v1/jobs", job, expect=201)
            conn.execute("notify all_said")
            for told in conn.notifies(timeout=10):
                heard.append(told.channel)
                if told.channel == "all_said":
                    break
    assert heard == ["all_said", "tickrail_wake", "all_said"]


def test_what_is_sent_with_the_commit_and_fails_leaves_nothing(world: World) -> None:
    engine = world.app.state.parts.database.engine
    tenant = TenantId(UUID(world.tenant_id("acme")))
    world.acme.post("/v1/jobs", JOB, expect=201)

    def remove_tags(divisor: int) -> None:
        with tenant_transaction(engine, tenant, Who("t")) as tx:
            assert tx.execute(delete(job_tags)).rowcount == 2
            tx.execute_last("select 1 / %(divisor)s", {"divisor": divisor})

    with pytest.raises(TickrailError, match="division by zero"):
        remove_tags(0)
    assert world.database.rows("select count(*) from job_tags") == [(2,)]
    remove_tags(1)
    assert world.database.rows("select count(*) from job_tags") == [(0,)]


def test_no_second_statement_takes_the_place_of_the_last(world: World) -> None:
    """The first would be lost: an audit entry, as things are."""
    engine = world.app.state.parts.database.engine
    tenant = TenantId(UUID(world.tenant_id("acme")))

    def leave_two() -> None:
        with tenant_transaction(engine, tenant, Who("t")) as tx:
            tx.execute_last("select 1", {})
            tx.execute_last("select 2", {})

    with pytest.raises(RuntimeError, match="left for the commit already"):
        leave_two()


def test_the_crowd_of_a_new_job_counts_itself(world: World) -> None:
    """The look comes with the insert, which it does not see."""
    every = {"name": "n", "schedule": {"cron": "0 2 * * *"}, "target": JOB["target"]}
    jobs = [{**every, "name": f"n-{n}"} for n in range(HERD - 2)]
    world.acme.post("/v1/jobs/batch", {"jobs": jobs}, expect=200)
    for name, crowd in (("one before", False), ("the last", True), ("one more", True)):
        answer = world.acme.post("/v1/jobs", {**every, "name": name.replace(" ", "-")}, expect=201)
        assert ("herd" in {w["code"] for w in answer["lint"]}) is crowd, name
    # A paused one does not wait.
    paused = {**every, "name": "paused", "paused": True}
    assert "herd" not in {
        w["code"] for w in world.acme.post("/v1/jobs", paused, expect=201)["lint"]
    }


def test_connections_that_died_in_the_pool_cost_no_request(world: World) -> None:
    world.acme.post("/v1/jobs", JOB, expect=201)
    [(ended,)] = world.database.rows(KILL)
    assert ended >= 1
    world.acme.get("/v1/jobs/name:a")
    [(ended,)] = world.database.rows(KILL)
    assert ended >= 1
    # The egress lists are read by a transaction of another kind.
    world.acme.post("/v1/jobs", {**JOB, "name": "b"}, expect=201)


def test_an_error_at_the_beginning_gives_the_connection_back(world: World) -> None:
    engine = world.app.state.parts.database.engine
    tenant = TenantId(UUID(world.tenant_id("acme")))
    for _ in range(40):
        with pytest.raises(ZeroDivisionError), tenant_transaction(engine, tenant, Who("t")):
            raise ZeroDivisionError
    with tenant_transaction(engine, tenant, Who("t")) as tx:
        assert tx.execute(select(func.count()).select_from(jobs)).scalar_one() == 0


def test_what_a_dry_run_would_do_is_not_in_the_audit_log(world: World) -> None:
    world.acme.put("/v1/jobs/name:a?dry_run=true", JOB, expect=200)
    assert world.database.rows("select action from audit_log where subject like 'job:%%'") == []
