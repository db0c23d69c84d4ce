"""`up` stopped or killed, and `up` again on the same folder: nothing lost, nothing repeated.

The slots that were missed in between follow each job's misfire policy.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.running import CLOCK, Running, data_folder, launches_of
from tests.support.until import pause, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

POLICIES = ("skip", "fire_once", "fire_all")
GRACE = 2
"""Seconds after which a slot is a misfire."""
AWAY = 2 * GRACE + 1.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_folder() as found:
        yield found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_up_goes_on_where_it_ended(folder: Path, number: signal.Signals) -> None:
    effects = folder / "effects"
    effects.touch(mode=0o666)
    with Running(folder) as up:
        start = CLOCK.now().replace(microsecond=0) + timedelta(seconds=6)
        jobs = {policy: make(up, policy, start, effects) for policy in POLICIES}
        assert CLOCK.now() < start, "the jobs were made too slowly for this test"
        until(lambda: len(succeeded(up)) >= 3 * len(jobs), 60)
        shown = key(up)
        up.stop(number)
        ended = CLOCK.now()
    pause(AWAY)
    with Running(folder) as up:
        assert key(up) == shown
        back = CLOCK.now()
        until(lambda: all(ran_after(up, job, back) for job in jobs.values()), 90)
        assert not up.rows("select from launches where state in ('dead', 'abandoned')")
        with up.client() as client:
            for policy in POLICIES:
                client.request("POST", f"/v1/jobs/name:{policy}/pause")
        until(lambda: not up.rows("select from launches where phase < 3"), 60)
        accounts = {policy: account(up, job) for policy, job in jobs.items()}
    for policy, (launched, skipped) in accounts.items():
        last = max(launched)
        expected = {start + timedelta(seconds=n) for n in range(int((last - start).seconds) + 1)}
        assert launched | skipped == expected, policy
        assert not launched & skipped, policy
    missed = {
        ended + timedelta(seconds=n) - timedelta(microseconds=ended.microsecond)
        for n in range(1, int(AWAY) - GRACE)
    }
    assert missed, "the pause was too short"
    assert missed <= accounts["skip"][1]
    assert missed <= accounts["fire_all"][0]
    assert not accounts["fire_all"][1]
    assert missed <= accounts["fire_once"][0] | accounts["fire_once"][1]
    assert accounts["fire_once"][1], "nothing was skipped by fire_once"
    effects_of = Counter(line.split()[0] for line in effects.read_text().splitlines())
    if number == signal.SIGTERM:
        assert set(effects_of.values()) == {1}
    assert len(effects_of) == sum(len(launched) for launched, _ in accounts.values())


def make(up: Running, policy: str, start: datetime, effects: Path) -> UUID:
    """A job of one second."""
    document = {
        "name": policy,
        "schedule": {"every": "1s", "anchor": start.isoformat()},
        "starts_at": start.isoformat(),
        "target": {"command": {"shell": f'echo "$TICKRAIL_LAUNCH_ID" >> {effects}'}},
        "overlap": "allow",
        "misfire": {"policy": policy, "grace": f"{GRACE}s", "max_count": 1000, "per_minute": 6000},
    }
    with up.client() as client:
        return UUID(client.request("POST", "/v1/jobs", json=document)["id"])


def key(up: Running) -> str:
    return next(line.split()[1] for line in up.shown if line.strip().startswith("Key"))


def succeeded(up: Running) -> list[Any]:
    return up.rows("select from launches where state = 'succeeded'")


def ran_after(up: Running, job: UUID, at: datetime) -> bool:
    """Whether slots after an instant were launched, and ran."""
    return (
        len(
            up.rows(
                "select from launches where job_id = %s and scheduled_at > %s"
                " and state = 'succeeded'",
                [job, at],
            )
        )
        > 2
    )


def account(up: Running, job: UUID) -> tuple[set[datetime], set[datetime]]:
    """The slots that were launched, and those that were skipped as misfires."""
    launched = set(launches_of(up, job))
    skipped: set[datetime] = set()
    rows = up.rows(
        "select scheduled_at, last_at, count, reason from skips where job_id = %s"
        " and reason <> 'paused'",
        [job],
    )
    for first, last, count, reason in rows:
        assert reason == "misfire"
        slots = {first + timedelta(seconds=n) for n in range((last - first).seconds + 1)}
        assert len(slots - launched) == count, (first, last, count)
        skipped |= slots - launched
    return launched, skipped
