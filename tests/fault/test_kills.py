"""kill -9 of each part under load, restarted: no slot without a record, none doubled, all end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.support.processes import CLOCK, Installation, installation, slots_of
from tests.support.until import pause, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

JOBS = 60
FEW = 3
DOCUMENT = {
    "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
    "target": {"noop": {}},
    "overlap": "allow",
    "visibility_timeout": "5s",
    "misfire": {"policy": "fire_all", "grace": "1m", "max_count": 10000, "per_minute": 100000},
    "retry": {"max_attempts": 10, "initial": "1s"},
}
SERVERS = ("postgres", "etcd", "kafka")


@pytest.fixture(scope="module")
def running() -> Iterator[Installation]:
    with installation() as found:
        until(lambda: found.query("select 1 from partitions where epoch = 0") == [], 60, 0.2)
        yield found


def kill_and_restart(found: Installation, victim: str) -> None:
    if victim in SERVERS:
        server = getattr(found.stack, victim)
        server.kill()
        pause(2.0)
        server.restart()
    else:
        found.services[victim].kill()
        pause(1.0)
        found.services[victim].start()


@pytest.mark.parametrize(
    "victim", ["scheduler-1", "worker-1", "kafka", "etcd", "postgres", "scheduler-2", "worker-2"]
)
def test_a_killed_part_loses_and_doubles_nothing(running: Installation, victim: str) -> None:
    jobs = running.add_jobs(JOBS, DOCUMENT)
    first = CLOCK.now() + timedelta(seconds=1)
    pause(4.0)
    kill_and_restart(running, victim)
    pause(4.0)
    last = CLOCK.now().replace(microsecond=0)
    until(lambda: running.ended(jobs, last), 90, 0.25)
    running.pause_jobs()

    rows = running.query(
        "select job_id, scheduled_at, state from launches where job_id = any(%s)"
        " and scheduled_at <= %s", jobs, last,
    )  # fmt: skip
    doubled = [key for key, n in Counter((j, at) for j, at, _ in rows).items() if n > 1]
    assert not doubled
    assert {state for *_, state in rows} == {"succeeded"}
    skipped = running.query("select count(*) from skips where job_id = any(%s)", jobs)
    assert skipped == [(0,)]
    for job in jobs:
        found = sorted(at for j, at, _ in rows if j == job)
        assert found[0] <= first
        assert found == slots_of(found[0], last, timedelta(seconds=1)), "a slot has no record"
    assert all(service.alive for service in running.services.values())


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_away_for_20_s_costs_little_and_all_go_on(
    running: Installation, server: str
) -> None:
    jobs = running.add_jobs(FEW, DOCUMENT)
    pause(3.0)
    before = {s.name: len(s.lines()) for s in running.services.values()}
    getattr(running.stack, server).kill()
    pause(2.0)
    used = {s.name: s.cpu_seconds() for s in running.services.values()}
    began = CLOCK.monotonic()
    pause(18.0)
    seconds = CLOCK.monotonic() - began
    shares = {s.name: (s.cpu_seconds() - used[s.name]) / seconds for s in running.services.values()}
    said = {s.name: s.lines()[before[s.name] :] for s in running.services.values()}
    getattr(running.stack, server).restart()
    last = CLOCK.now().replace(microsecond=0)
    until(lambda: running.ended(jobs, last), 90, 0.25)
    running.pause_jobs()
    assert running.query(
        "select count(distinct job_id), count(*) filter (where state <> 'succeeded')"
        " from launches where job_id = any(%s) and scheduled_at <= %s", jobs, last,
    ) == [(FEW, 0)]  # fmt: skip
    assert max(shares.values()) < 0.05, shares
    for name, lines in said.items():
        events = Counter(
            (line["event"], line.get("loop"), line.get("server"))
            for line in lines
            if line["level"] in {"warning", "error"}
        )
        assert all(n <= 3 for n in events.values()), (name, events)
