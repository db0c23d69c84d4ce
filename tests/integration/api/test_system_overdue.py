"""How late each step is, as one sees it who owns nothing."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from tests.support.api import World, webhook
from tests.support.database import Database

from tickrail.core.clock import SystemClock
from tickrail.core.durations import parse_duration
from tickrail.store.engine import ApiDatabase, read_overdue
from tickrail.store.session import DatabaseSettings

pytestmark = pytest.mark.integration


def overdue(database: Database) -> float:
    api = ApiDatabase(DatabaseSettings(database.api_url), SystemClock(), pool_size=1)
    try:
        with api.installation() as tx:
            return read_overdue(tx)
    finally:
        api.close()


def test_the_job_that_is_due_longest_counts_whoever_it_belongs_to(world: World) -> None:
    assert overdue(world.database) == 0
    for caller, name in ((world.acme, "a"), (world.beta, "b"), (world.acme, "c")):
        caller.post("/v1/jobs", webhook(name, schedule={"every": "1h"}), expect=201)
    assert overdue(world.database) == 0
    world.database.run("update jobs set next_run_at = now() - interval '30 s' where name = 'a'")
    world.database.run("update jobs set next_run_at = now() - interval '90 s' where name = 'b'")
    assert 90 <= overdue(world.database) < 120


@pytest.mark.parametrize(
    "change", ["update jobs set state = 'paused'", "update tenants set state = 'suspended'"]
)
def test_what_waits_by_intention_does_not_count(world: World, change: str) -> None:
    world.acme.post("/v1/jobs", webhook("a", schedule={"every": "1h"}), expect=201)
    world.database.run("update jobs set next_run_at = now() - interval '90 s'")
    assert overdue(world.database) >= 90
    world.database.run(change)
    assert overdue(world.database) == 0


def test_only_the_api_may_ask(database: Database) -> None:
    with psycopg.connect(database.engine_url) as conn, pytest.raises(errors.InsufficientPrivilege):
        conn.execute("select overdue_seconds()")


def test_lag_is_of_every_queue_and_class_and_of_all_tenants(world: World) -> None:
    nothing = {"plan": "0s", "publish": "0s", "start": "0s", "items": [], "next_cursor": None}
    assert world.operator.get("/v1/system/lag") == nothing
    for caller, name in ((world.acme, "a"), (world.beta, "b"), (world.acme, "c")):
        caller.post("/v1/jobs", webhook(name), expect=201)
    world.acme.post("/v1/jobs", webhook("d", schedule={"every": "1h"}), expect=201)
    for caller, name, priority in (
        (world.acme, "a", "normal"), (world.beta, "b", "normal"), (world.acme, "c", "high"),
        (world.acme, "c", "high"), (world.acme, "c", "high"),
    ):  # fmt: skip
        trigger = {"priority": priority, "overlap": "allow"}
        caller.post(f"/v1/jobs/name:{name}/trigger", trigger, expect=201)
    of = "(select id from jobs where name = '{}')".format
    run = world.database.run
    run(f"update launches set due_at = now() - interval '40.5 s' where job_id = {of('a')}")
    run(f"update launches set due_at = now() - interval '20.5 s' where job_id = {of('b')}")
    run(
        "update launches set state = 'queued', phase = 2, queued_at = now() - interval '5.5 s'"
        f" where id = (select id from launches where job_id = {of('c')} order by id limit 1)"
    )
    run(
        "update launches set state = 'running', phase = 2"
        f" where id = (select id from launches where job_id = {of('c')} order by id desc limit 1)"
    )
    run("update launches set due_at = now() + interval '1 h' where state = 'due' and priority = 0")
    run("update jobs set next_run_at = now() - interval '9.5 s' where name = 'd'")
    high, normal = (
        {"queue": "default", "priority": "high", "due": 0, "queued": 1, "running": 1,
         "oldest_due": None},
        {"queue": "default", "priority": "normal", "due": 2, "queued": 0, "running": 0,
         "oldest_queued": None},
    )  # fmt: skip
    found = world.operator.get("/v1/system/lag")
    first, second = found.pop("items")
    for length, least in (
        (first.pop("oldest_queued"), 5), (second.pop("oldest_due"), 40), (found["plan"], 9),
        (found["publish"], 40), (found["start"], 5),
    ):  # fmt: skip
        assert least <= parse_duration(length).total_seconds() < least + 20
    assert (first, second) == (high, normal)
    world.acme.get("/v1/system/lag", expect=403)
