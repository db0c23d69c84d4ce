"""Work that survives, with real processes: long runs, killed and drained workers, slow calls.

The visibility timeout and the runs are scaled down; loadtest/chaos.py and `python -m
tests.fault.test_work` play them at full length.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fault.chaos import ENVIRONMENT, GROUP, Chaos, Journal
from tests.fault.chaos_checks import judge
from tests.fault.history import Effects
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.until import pause, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WORKERS = 2
VISIBILITY = 10.0
RUN = 12.0
BACKOFF = 1.0
HEARS_WITHIN = 1.0
BROKER_TELLS = 2.0
"""Seconds: a broker gathers changes for one, and speaks to each member once in one."""


@pytest.fixture(scope="module")
def running() -> Iterator[Installation]:
    with installation(environment=ENVIRONMENT, schedulers=1) as found:
        until(lambda: found.query("select 1 from partitions where epoch = 0") == [], 60, 0.1)
        until(lambda: all(s.ready() for s in found.services.values()), 60, 0.1)
        with Effects() as first:
            until(lambda: both_work(found, first), 60, 0.1)
        yield found


@pytest.fixture
def effects() -> Iterator[Effects]:
    with Effects() as made:
        yield made


def once(seconds: float, target: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A job that is due once, within two seconds."""
    due = CLOCK.now().replace(microsecond=0) + timedelta(seconds=2)
    return {
        "schedule": {"at": due.isoformat()},
        "overlap": "allow",
        "target": target,
        "timeout": f"{seconds * 3:g}s",
        "retry": {"initial": f"{BACKOFF:g}s", "jitter": 0},
        **more,
    }


def rows(found: Installation, jobs: list[Any]) -> dict[str, Any]:
    """Launch id -> (state, attempt, worker)."""
    return {
        r[0]: r[1:]
        for r in found.query(
            "select id::text, state, attempt, worker from launches where job_id = any(%s)", jobs
        )
    }


def both_work(found: Installation, effects: Effects) -> bool:
    """Whether launches of one instant go to both workers: a group is not whole when it is ready."""
    jobs = found.add_jobs(24, once(1.0, effects.target()))
    until(lambda: {row[0] for row in rows(found, jobs).values()} == {"succeeded"}, 30, 0.05)
    return len({row[2] for row in rows(found, jobs).values()}) == WORKERS


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def long_runs(found: Installation, effects: Effects, run: float, visibility: float) -> float:
    """Runs that outlast their visibility: once while their worker lives; again or not when not.

    Returns:
        Seconds from the kill until the last of those that run again has started.
    """
    base = once(run, effects.target(delay=run), visibility_timeout=f"{visibility:g}s")
    again = found.add_jobs(12, base)
    never = found.add_jobs(12, {**base, "if_uncertain": "skip"})
    jobs = [*again, *never]
    until(lambda: len(effects.noted) == len(jobs), 30, 0.05)
    held = {key: row[2] for key, row in rows(found, jobs).items()}
    victim = found.services["worker-1"]
    killed = {key for key, worker in held.items() if worker == victim.name}
    assert 0 < len(killed) < len(jobs), held
    pause(visibility / 5)
    victim.kill()
    at = CLOCK.now()
    until(lambda: all(r[0] not in ("due", "queued", "running") for r in rows(found, jobs).values()),
          2 * (run + visibility) + 20, 0.2)  # fmt: skip
    victim.start()
    ended = rows(found, jobs)
    skipped = {
        r[0] for r in found.query("select id::text from launches where job_id = any(%s)", never)
    }
    latest = at + timedelta(seconds=visibility + BACKOFF + 2)
    for key, (state, attempt, _) in ended.items():
        starts = effects.of(key)
        if key not in killed:
            # Its worker lived: the heartbeats kept the claim.
            assert (state, attempt, len(starts)) == ("succeeded", 1, 1), (key, starts)
        elif key in skipped:
            assert (state, attempt, len(starts)) == ("abandoned", 1, 1), (key, starts)
        else:
            assert (state, attempt, len(starts)) == ("succeeded", 2, 2), (key, starts)
            assert at < instant(starts[1]["begin"]) <= latest, (key, at, starts)
    return max((instant(effects.of(k)[1]["begin"]) - at).total_seconds() for k in killed - skipped)


def test_a_run_beyond_its_visibility_runs_once_and_again_only_when_its_worker_is_killed(
    running: Installation, effects: Effects
) -> None:
    long_runs(running, effects, RUN, VISIBILITY)
    until(running.services["worker-1"].ready, 30, 0.1)


def test_200_slow_calls_do_not_keep_a_worker_from_hearing_a_rebalance(
    running: Installation, effects: Effects
) -> None:
    first, second = running.services["worker-1"], running.services["worker-2"]
    assert second.end() == 0
    jobs = running.add_jobs(200, once(60.0, effects.target(delay=60.0)))
    until(lambda: len(effects.noted) == len(jobs), 30, 0.05)
    begun = len(first.said("partitions_revoked"))
    second.start()
    until(lambda: second.said("partitions_assigned"), 30, 0.02)
    assert all(e["end"] is None for e in effects.noted), "the calls were over"
    joined = instant(second.said("serving")[0]["time"])
    heard = instant(first.said("partitions_revoked")[begun]["time"])
    effects.release()
    assert (heard - joined).total_seconds() < HEARS_WITHIN + BROKER_TELLS
    until(lambda: {r[0] for r in rows(running, jobs).values()} == {"succeeded"}, 30, 0.1)
    assert all(len(effects.of(key)) == 1 for key in rows(running, jobs))


def five_runs(found: Installation, effects: Effects, seconds: float) -> tuple[Service, list[Any]]:
    """Five runs of so many seconds under way at worker-1, alone."""
    worker = found.services["worker-1"]
    target = effects.target(delay=seconds)
    jobs = found.add_jobs(5, once(seconds, target, visibility_timeout="6s"))
    until(lambda: len(effects.noted) == len(jobs), 30, 0.02)
    return worker, jobs


def test_e09_a_drain_lets_runs_end_gives_back_the_rest_and_a_second_signal_ends_at_once(
    running: Installation, effects: Effects
) -> None:
    other = running.services["worker-2"]
    assert other.end() == 0
    worker, jobs = five_runs(running, effects, 3.0)
    began = CLOCK.monotonic()
    waits = running.add_jobs(1, once(0.0, effects.target(delay=0.0), timeout="5s"))
    assert worker.end() == 0
    assert CLOCK.monotonic() - began < 3 + 5
    assert {r[:2] for r in rows(running, jobs).values()} == {("succeeded", 1)}
    assert {r[0] for r in rows(running, waits).values()} <= {"due", "queued"}, "a claim after it"

    # A grace time that is too short.
    usual = worker.environment
    worker.environment = {**usual, "TICKRAIL_DRAIN_GRACE": "1"}
    worker.start()
    until(lambda: {r[0] for r in rows(running, waits).values()} == {"succeeded"}, 40, 0.1)
    effects.noted.clear()
    _, jobs = five_runs(running, effects, 6.0)
    began = CLOCK.monotonic()
    assert worker.end() == 1
    assert CLOCK.monotonic() - began < 1 + 5
    assert {r[:2] for r in rows(running, jobs).values()} <= {("due", 2), ("queued", 2)}
    told = running.query(
        "select distinct a.outcome from attempts a join launches l on l.id = a.launch_id"
        " where l.job_id = any(%s)", jobs,
    )  # fmt: skip
    assert told == [("interrupted",)]

    # The second signal.
    worker.environment = usual
    worker.start()
    until(lambda: {r[0] for r in rows(running, jobs).values()} == {"running"}, 40, 0.1)
    assert worker.process is not None
    worker.process.terminate()
    until(lambda: worker.said("draining"), 10, 0.02)
    worker.process.terminate()
    assert worker.process.wait(5) == 128 + signal.SIGTERM
    worker.start()
    other.start()
    until(lambda: {r[0] for r in rows(running, jobs).values()} == {"succeeded"}, 90, 0.2)


def test_2000_launches_that_fail_at_random_survive_killed_workers_and_a_restart_of_kafka(
    running: Installation,
) -> None:
    assert running.services["worker-1"].environment.get("TICKRAIL_KAFKA_GROUP", GROUP) == GROUP
    until(lambda: all(s.ready() for s in running.services.values()), 60, 0.1)
    with Journal() as journal:
        chaos = Chaos(running, journal, 200, 10, kill_every=3, restart_kafka_at=4)
        chaos.run(within=150)
        verdict = judge(chaos)
    assert verdict.figures["launches"] >= 2000 - 200
    assert verdict.figures["kills of workers"] >= 2
    assert verdict.figures["of them failed"] > 200
    # How late a message is published is measured on a quiet machine, not here.
    assert [b for b in verdict.breaches if "p99" not in b] == []


if __name__ == "__main__":
    with Effects() as receiver, installation(environment=ENVIRONMENT, schedulers=1) as made:
        until(lambda: all(s.ready() for s in made.services.values()), 60, 0.1)
        until(lambda: made.query("select 1 from partitions where epoch = 0") == [], 60, 0.1)
        took = long_runs(made, receiver, 90.0, 30.0)
    print(f"Started again within {took:.1f} s of the kill.")  # noqa: T201 - a program
