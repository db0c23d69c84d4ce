"""Decisions that jobs share."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.definition import Plan, parse_definition
from tickrail.core.ids import JobId
from tickrail.core.plan import Decision, Situation, plan_job
from tickrail.engine.decisions import SharedDecisions

NOW = datetime(2026, 11, 29, 12, 0, 7, tzinfo=UTC)
DUE = datetime(2026, 11, 29, 11, 51, tzinfo=UTC)
JOBS = [JobId(UUID(int=n)) for n in range(1, 4)]


class Asked:
    """`plan_job`, counted by job."""

    def __init__(self) -> None:
        self.jobs: Counter[JobId] = Counter()

    def __call__(self, plan: Plan, s: Situation, now: datetime) -> Decision:
        self.jobs[s.job] += 1
        return plan_job(plan, s, now)


def plan_of(**document: Any) -> Plan:
    whole = {"name": "x", "schedule": {"cron": "* * * * *"}, "target": {"noop": {}}, **document}
    return parse_definition(whole, job=JOBS[0], now=NOW).plan


def test_jobs_that_are_alike_are_decided_once() -> None:
    asked = Asked()
    share = SharedDecisions(asked)
    plan = plan_of(misfire={"policy": "fire_all", "grace": "1s", "max_count": 3})
    made = [share(plan, Situation(job, DUE, launched=n), NOW) for n, job in enumerate(JOBS)]
    assert asked.jobs.total() == 1
    assert made == [plan_job(plan, Situation(job, DUE), NOW) for job in JOBS]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"due_at": DUE + timedelta(minutes=1)}, id="another slot"),
        pytest.param({"open_launches": 1}, id="a launch is open"),
        pytest.param({"last_slot": DUE - timedelta(minutes=1)}, id="another last slot"),
        pytest.param({"oldest": NOW - timedelta(minutes=5)}, id="another horizon"),
        pytest.param({"skip_next": 2}, id="slots left out by hand"),
    ],
)
def test_another_situation_has_its_own_decision(other: dict[str, Any]) -> None:
    share = SharedDecisions(plan_job)
    plan = plan_of(misfire={"policy": "fire_all", "grace": "1s", "max_count": 3})
    share(plan, Situation(JOBS[0], DUE), NOW)
    situation = Situation(JOBS[1], **{"due_at": DUE, **other})
    assert share(plan, situation, NOW) == plan_job(plan, situation, NOW)


def test_another_plan_and_another_instant_have_their_own() -> None:
    share = SharedDecisions(plan_job)
    situation = Situation(JOBS[0], DUE)
    for policy in ("fire_once", "skip"):
        plan = plan_of(misfire={"policy": policy, "grace": "1s"})
        for now in (NOW, NOW + timedelta(minutes=3)):
            assert share(plan, situation, now) == plan_job(plan, situation, now)


def test_how_many_were_launched_counts_where_there_is_a_maximum() -> None:
    share = SharedDecisions(plan_job)
    plan = plan_of(max_launches=2)
    found = [share(plan, Situation(JOBS[n], DUE, launched=n), NOW) for n in range(3)]
    assert [len(d.launches) for d in found] == [1, 1, 0]
    assert [d.wake_at is None for d in found] == [False, True, True]


def test_jitter_is_each_job_s_own() -> None:
    share = SharedDecisions(plan_job)
    plan = plan_of(jitter="50s")
    made = [share(plan, Situation(job, DUE), NOW) for job in JOBS]
    assert made == [plan_job(plan, Situation(job, DUE), NOW) for job in JOBS]
    assert len({d.wake_at for d in made}) > 1
