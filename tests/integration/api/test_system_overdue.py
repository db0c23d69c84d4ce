"""How late the tick is, as one sees it who owns nothing."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from tests.support.api import World, webhook
from tests.support.database import Database

from tickrail.core.clock import SystemClock
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
