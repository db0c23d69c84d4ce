from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.clock import START, FakeClock

from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import JobId, Partition
from tickrail.core.ports_forecast import JobSample, SampledJob
from tickrail.engine.forecast import AHEAD, CHUNK, LATEST, PAUSE, SOONEST, WALKED, Forecast, slots

JOB = JobId(UUID(int=7))


def job(schedule: dict[str, Any] | None, due_in: float = 0.0) -> SampledJob:
    return SampledJob(JOB, json.dumps({"schedule": schedule}), START + timedelta(seconds=due_in))


@pytest.mark.parametrize(
    ("name", "schedule", "due_in", "buckets"),
    [
        ("each hour", {"cron": "0 * * * *"}, 0, {12 * h: 1 for h in range(24)}),
        ("once", {"at": "2026-03-02T12:02:00Z"}, 7320, {24: 1}),
        ("by hand, resumed now", None, 0, {0: 1}),
        (
            "overdue",
            {"every": "12h", "anchor": "2026-03-02T09:00:00Z"},
            -3600,
            {0: 1, 132: 1, 276: 1},
        ),
        ("each minute", {"cron": "* * * * *"}, 0, dict.fromkeys(range(288), 5)),
        ("each second goes on at its pace", {"every": "1s"}, 0, dict.fromkeys(range(288), 300)),
    ],
)
def test_slots_lie_in_their_five_minutes(
    name: str, schedule: dict[str, Any] | None, due_in: float, buckets: dict[int, int]
) -> None:
    del name
    assert dict(slots(job(schedule, due_in), START, START + AHEAD)) == buckets


def test_a_plan_of_another_version_is_said() -> None:
    with pytest.raises(InvalidInputError):
        slots(job({"moon": "full"}), START, START + AHEAD)


class Sampler:
    def __init__(self, jobs: list[SampledJob], weight: float = 1.0) -> None:
        self.jobs, self.weight = jobs, weight
        self.asked: list[tuple[Collection[Partition], timedelta]] = []

    def sample(self, owned: Collection[Partition], ahead: timedelta, size: int) -> JobSample:
        assert size > 0
        self.asked.append((owned, ahead))
        return JobSample(START + timedelta(seconds=123), self.weight, self.jobs)


class Gauges:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str], float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        raise AssertionError((name, amount, labels))

    observe = count

    def gauge(self, name: str, value: float, **labels: str) -> None:
        assert name == "slots_forecast"
        self.found[labels["hour"], labels["minute"]] = value


def test_a_forecast_is_told_with_the_time_of_day() -> None:
    sampler, gauges = Sampler([job({"cron": "30 6 * * *"}, 73_800)], weight=40.0), Gauges()
    assert Forecast(sampler, lambda: [Partition(1)], gauges, FakeClock()).run_once() == SOONEST
    assert len(gauges.found) == 288
    assert {at: n for at, n in gauges.found.items() if n} == {("06", "30"): 40.0}
    assert sampler.asked == [({Partition(1)}, AHEAD)]


def test_many_jobs_are_looked_at_in_parts_and_a_bad_one_is_left_out() -> None:
    hourly = [job({"cron": "0 * * * *"}) for _ in range(2 * CHUNK)]
    sampler, gauges = Sampler([*hourly, job({"moon": "full"})]), Gauges()
    loop = Forecast(sampler, lambda: [Partition(1)], gauges, FakeClock())
    assert [loop.run_once() for _ in range(3)] == [PAUSE, PAUSE, SOONEST]
    assert gauges.found["11", "00"] == 2 * CHUNK
    assert len(sampler.asked) == 1


def test_what_is_not_owned_any_more_is_told_as_nothing() -> None:
    owned = [Partition(1)]
    gauges = Gauges()
    loop = Forecast(Sampler([job({"cron": "0 * * * *"})]), lambda: owned, gauges, FakeClock())
    loop.run_once()
    assert sum(gauges.found.values()) == 24
    owned.clear()
    assert loop.run_once() == SOONEST
    assert sum(gauges.found.values()) == 0
    quiet = Gauges()
    Forecast(Sampler([]), lambda: owned, quiet, FakeClock()).run_once()
    assert quiet.found == {}


def test_the_next_one_comes_by_what_the_last_one_took_or_when_ownership_changes() -> None:
    clock, owned = FakeClock(), [Partition(1)]
    sampler = Sampler([job({"cron": "0 * * * *"})])
    seconds = 0.0

    def slow_owned() -> list[Partition]:
        clock.advance(seconds)
        return list(owned)

    loop = Forecast(sampler, slow_owned, Gauges(), clock)
    loop.run_once()
    assert loop.run_once() == SOONEST
    assert len(sampler.asked) == 1
    clock.advance(SOONEST)
    seconds = 1.0
    loop.run_once()
    assert len(sampler.asked) == 2
    seconds = 0.0
    clock.advance(199)
    loop.run_once()
    assert len(sampler.asked) == 2, "it took a second"
    owned.append(Partition(2))
    loop.run_once()
    assert len(sampler.asked) == 3
    assert SOONEST < LATEST


def test_the_walk_of_a_minutely_job_is_whole() -> None:
    assert AHEAD / timedelta(minutes=1) < WALKED
    assert datetime(2026, 3, 2, 10, tzinfo=UTC) == START
