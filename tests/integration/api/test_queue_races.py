"""Queues and limits that several change at the same moment, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.support.api import World, webhook
from tests.support.until import until

pytestmark = pytest.mark.integration

DEFAULT, MAIL = "/v1/queues/default", "/v1/queues/mail"
_NO_WRITES = "lock table {} in share row exclusive mode"


@contextmanager
def holding(world: World, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has run a statement and is not over."""
    with psycopg.connect(world.database.admin_url) as conn:
        conn.execute(statement.encode())
        yield conn


def waits(world: World, count: int) -> None:
    """Until so many sessions wait for locks."""
    query = (
        "select count(*) from pg_stat_activity"
        " where wait_event_type = 'Lock' and datname = current_database()"
    )
    until(lambda: world.database.rows(query) == [(count,)])


def status(done: Future[Any]) -> int:
    """What a call in another thread was answered."""
    return int(done.result(30).status_code)


@pytest.mark.parametrize("there", [True, False])
def test_of_two_who_saw_the_same_one_changes_a_tenants_part(world: World, *, there: bool) -> None:
    if there:
        world.acme.patch(DEFAULT, {"max_running": 1})
    seen = {"If-Match": '"2"' if there else '"1"'}
    changes: list[dict[str, Any]] = [{"max_running": 5}, {"rate": {"count": 6, "per": "1m"}}]
    held_up = "select from limits for update" if there else _NO_WRITES.format("limits")
    with ThreadPoolExecutor(2) as pool, holding(world, held_up) as held:
        done = [
            pool.submit(world.acme.call, "PATCH", DEFAULT, change, headers=seen)
            for change in changes
        ]
        waits(world, 2)
        held.rollback()
        assert sorted(map(status, done)) == [200, 412]


def test_changes_of_different_limits_at_once_are_both_kept(world: World) -> None:
    world.acme.patch(DEFAULT, {"max_running": 1})
    with ThreadPoolExecutor(2) as pool, holding(world, "select from limits for update") as held:
        done = [
            pool.submit(world.acme.call, "PATCH", DEFAULT, change)
            for change in ({"max_running": 5}, {"rate": {"count": 6, "per": "1m"}})
        ]
        waits(world, 2)
        held.rollback()
        assert list(map(status, done)) == [200, 200]
    mine = world.acme.get(DEFAULT)["tenant"]
    assert (mine["max_running"], mine["rate"]) == (5, {"count": 6, "per": "1m"})


@pytest.mark.parametrize("how", ["POST", "PUT"])
def test_a_job_made_while_its_queue_is_deleted(world: World, how: str) -> None:
    """The deletion sees it and is refused: no job is left without its queue."""
    world.operator.put(MAIL, {"kinds": ["webhook"]}, expect=201)
    document = webhook("letters", queue="mail")
    path = "/v1/jobs" if how == "POST" else "/v1/jobs/name:letters"
    held_up = _NO_WRITES.format("job_versions")
    with ThreadPoolExecutor(2) as pool, holding(world, held_up) as held:
        made = pool.submit(world.acme.call, how, path, document)
        waits(world, 1)
        deleted = pool.submit(world.operator.call, "DELETE", MAIL)
        waits(world, 2)
        held.rollback()
        assert (status(made), status(deleted)) == (201, 409)


def test_a_kind_that_is_taken_away_waits_for_a_job_that_uses_it(world: World) -> None:
    world.operator.put(MAIL, {"kinds": ["webhook", "task"]}, expect=201)
    held_up = _NO_WRITES.format("job_versions")
    with ThreadPoolExecutor(2) as pool, holding(world, held_up) as held:
        made = pool.submit(world.acme.call, "POST", "/v1/jobs", webhook("letters", queue="mail"))
        waits(world, 1)
        changed = pool.submit(world.operator.call, "PUT", MAIL, {"kinds": ["task"]})
        waits(world, 2)
        held.rollback()
        assert (status(made), status(changed)) == (201, 200)
    refused = world.acme.call("POST", "/v1/jobs", webhook("more", queue="mail"), expect=422).json()
    assert [e["pointer"] for e in refused["errors"]] == ["/queue"]
