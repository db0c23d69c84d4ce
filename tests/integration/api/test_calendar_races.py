"""Calendars that are edited while ticks and changes of jobs go on, on the real database."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.support.api import Caller, World
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, PostgresBed
from tests.support.until import until

from tickrail.engine.tick import Tick

pytestmark = pytest.mark.integration

FREEZE = "/v1/calendars/freeze"
DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
SECONDS = {"every": "1s"}
STATES: list[dict[str, Any]] = [
    {"weekdays": DAYS},
    {},
    {"dates": [{"from": "2020-01-01", "to": "2090-12-31"}]},
    {"windows": [{"from": f"{h:02d}:00", "to": f"{h:02d}:30"} for h in range(24)]},
]


@pytest.fixture
def bed(world: World) -> Iterator[PostgresBed]:
    made = PostgresBed(world.database)
    yield made
    made.close()


def during(work: Callable[[threading.Event], Any], main: Callable[[], None]) -> None:
    """Do one thing as long as the other one goes on."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work, over)
        try:
            main()
        finally:
            over.set()
        done.result()


@contextmanager
def holding(world: World, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has run a statement and is not over."""
    with psycopg.connect(world.database.admin_url) as conn:
        conn.execute(statement.encode())
        yield conn


def rows(world: World, statement: str) -> Sequence[tuple[object, ...]]:
    return world.database.rows(statement)


def decided(world: World, job: str) -> tuple[int, int]:
    """How many slots of a job are launched or recorded, and how many that should be."""
    [(launched,)] = world.database.rows("select count(*) from launches where job_id = %s", job)
    [(skipped,)] = world.database.rows(
        "select coalesce(sum(count), 0)::bigint from skips where job_id = %s", job
    )
    [(last,)] = world.database.rows("select last_slot_at from jobs where id = %s", job)
    assert isinstance(launched, int)
    assert isinstance(skipped, int)
    assert isinstance(last, datetime)
    [(created,)] = world.database.rows("select created_at from jobs where id = %s", job)
    assert isinstance(created, datetime)
    return launched + skipped, (last - created.replace(microsecond=0)) // timedelta(seconds=1)


def test_no_slot_is_lost_or_doubled_while_a_calendar_changes(
    world: World, bed: PostgresBed
) -> None:
    world.acme.put(FREEZE, {}, expect=201)
    use = {"exclude": ["freeze"]}
    jobs = [
        world.acme.create(f"job-{i}", schedule=SECONDS, overlap="allow", calendars=use)["id"]
        for i in range(8)
    ]
    tick = Tick(bed.owner(), Counted())

    def ticks(over: threading.Event) -> None:
        while not over.wait(0.02):
            tick.run_once(OWNED)

    def edits() -> None:
        for n in range(60):
            world.acme.put(FREEZE, STATES[n % len(STATES)])
        turns = itertools.cycle(STATES)
        seen = (
            "select exists (select from skips where reason = 'excluded'),"
            " exists (select from launches),"
            " (select bool_and(last_slot_at > created_at + interval '4 s') from jobs)"
        )
        # Which state a second's slot meets is chance, and so is how many there are by now.
        until(
            lambda: (
                world.acme.put(FREEZE, next(turns)) and rows(world, seen) == [(True, True, True)]
            ),
            60,
        )

    during(ticks, edits)
    world.acme.put(FREEZE, {})

    def settled() -> bool:
        tick.run_once(OWNED)
        return rows(world, "select count(*) from jobs where next_run_at <= now()") == [(0,)]

    until(settled, 20)
    for job in jobs:
        found, wanted = decided(world, job)
        assert found == wanted
        assert found > 2
    skips = world.database.rows("select reason, sum(count) from skips group by reason")
    launched = world.database.rows("select count(*) > 0 from launches")
    assert {reason for reason, _ in skips} >= {"excluded"}, "the edits took effect between ticks"
    assert launched == [(True,)]


def test_changes_of_jobs_and_calendars_at_once_never_wait_in_a_circle(world: World) -> None:
    names = ("freeze", "quiet")
    for name in names:
        world.acme.put(f"/v1/calendars/{name}", {}, expect=201)
    jobs = [world.acme.create(f"job-{i}", schedule={"cron": f"{i} 3 * * *"}) for i in range(6)]

    def act(caller: Caller, n: int) -> set[int]:
        seen = set()
        for i in range(25):
            turn = (n * 7 + i) % 6
            if n % 2:
                path, body = f"/v1/calendars/{names[turn % 2]}", STATES[(n + i) % len(STATES)]
                seen.add(caller.call("PUT", path, body).status_code)
            else:
                use = {"exclude": list(names[: 1 + (n + i) % 2])}
                path = f"/v1/jobs/{jobs[turn]['id']}"
                patch = {"calendars": use, "description": f"{n} {i}"}
                seen.add(caller.call("PATCH", path, patch).status_code)
        return seen

    with ThreadPoolExecutor(6) as pool:
        seen = set().union(*pool.map(lambda n: act(world.acme, n), range(6)))
    # 422: the calendar of that moment leaves the job without a run. 409: try again.
    assert seen <= {200, 409, 422}
    assert 200 in seen
    [(killed,)] = world.database.rows(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    assert killed == 0
    # Whoever came last: each job waits for what its calendars, as they are now, allow.
    for name in names:
        world.acme.put(f"/v1/calendars/{name}", {})
    for job in jobs:
        found = world.acme.get(f"/v1/jobs/{job['id']}")
        minute = int(found["schedule"]["cron"].split()[0])
        assert found["next_run_at"][11:16] == f"03:{minute:02d}"


def test_a_job_that_is_changed_while_its_calendar_is_hears_to_try_again(world: World) -> None:
    world.acme.put(FREEZE, {}, expect=201)
    job = world.acme.create("a", schedule={"cron": "0 3 * * *"})
    with holding(world, "select 1 from calendars for update"):
        use = {"calendars": {"exclude": ["freeze"]}}
        refused = world.acme.call("PATCH", f"/v1/jobs/{job['id']}", use, expect=409)
        assert refused.json()["code"] == "in_progress"
        assert refused.headers["Retry-After"] == "1"
        world.acme.get(FREEZE)
    world.acme.call("PATCH", f"/v1/jobs/{job['id']}", use, expect=200)


def test_a_change_waits_for_a_job_that_begins_to_use_the_calendar(world: World) -> None:
    """Not seen yet, the job would keep a next run that the change forbids."""
    world.acme.put(FREEZE, {}, expect=201)
    job = world.acme.create("a", schedule={"cron": "0 3 * * *"})
    due = job["next_run_at"]
    begin = (
        "select 1 from calendars for share; insert into job_calendars select id, tenant_id,"
        " 'freeze' from jobs; update jobs set plan = jsonb_set(plan, '{calendars}',"
        ' \'{"exclude": ["freeze"], "include": [], "on_excluded": "skip"}\')'
    )
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and pid <> %s"
    with ThreadPoolExecutor(1) as pool, holding(world, begin) as conn:
        change = pool.submit(world.acme.put, FREEZE, {"dates": [due[:10]]})
        until(lambda: world.database.rows(waits, 0) != [(0,)], 10)
        conn.commit()
        moved = change.result(20)["moved"]
    assert [item["next_run_at"]["before"] for item in moved["items"]] == [due]
    assert world.acme.get(f"/v1/jobs/{job['id']}")["next_run_at"] != due


def test_a_calendar_that_was_deleted_and_made_again_is_read_anew(
    world: World, bed: PostgresBed
) -> None:
    tick = Tick(bed.owner(), Counted())
    now = bed.now()
    soon = [now + timedelta(seconds=n) for n in range(600)]
    even = [at for at in soon if at.second % 2 == 0]
    windows = [
        {"from": f"{at:%H:%M:%S}", "to": f"{at + timedelta(seconds=1):%H:%M:%S}"} for at in even
    ]
    for document in ({}, {"windows": windows}):
        assert world.acme.put(FREEZE, document, expect=201)["version"] == 1
        use = {"exclude": ["freeze"]}
        job = world.acme.create("a", schedule=SECONDS, calendars=use, overlap="allow")

        def seconds(job: str = job["id"]) -> list[int]:
            tick.run_once(OWNED)
            slots = "select extract(second from scheduled_at)::int from launches where job_id = %s"
            return [second for (second,) in world.database.rows(slots, job)]  # type: ignore[misc] - numbers

        until(lambda seconds=seconds: len(seconds()) > 2, 20)
        assert any(second % 2 == 0 for second in seconds()) == (not document)
        world.acme.delete(f"/v1/jobs/{job['id']}")
        world.acme.delete(FREEZE)


def test_two_puts_of_one_name_at_once(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        codes = list(
            pool.map(
                lambda n: world.acme.call("PUT", FREEZE, {"description": str(n)}).status_code,
                range(8),
            )
        )
    assert sorted(codes) == [200] * 7 + [201]
    assert world.acme.get(FREEZE)["version"] == 8
