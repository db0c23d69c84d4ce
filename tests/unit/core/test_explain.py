"""Why a launch stands where it stands: each check as the one that holds it; exactly one does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.explain import CHECKS, MANY, Ended, explain
from tickrail.core.explain_facts import Ahead, Cap, Facts, Other, Serving, Wait
from tickrail.core.ids import Claim, JobId, LaunchId, Partition
from tickrail.core.job_filter import JobState
from tickrail.core.limits import KEY, MAX_RUNNING, QUEUE, RATE, TENANT, Limit, Rate
from tickrail.core.records import LaunchRecord
from tickrail.core.states import State

NOW = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
SOON, BEFORE = NOW + timedelta(seconds=40), NOW - timedelta(seconds=40)
ID = LaunchId(UUID(int=5))
OTHER = Other(LaunchId(UUID(int=6)), State.RUNNING, "w-2")
RECORD = LaunchRecord(
    id=ID,
    job=JobId(UUID(int=7)),
    job_name="nightly",
    job_version=1,
    origin="schedule",
    scheduled_at=BEFORE,
    due_at=BEFORE,
    state=State.DUE,
    attempt=1,
    failures=0,
    max_attempts=5,
    queue="default",
    priority=1,
    worker=None,
    claim=None,
    cancel_requested=False,
    created_at=BEFORE,
    queued_at=None,
    started_at=None,
    finished_at=None,
    result=None,
    redrive_count=0,
)
FACTS = Facts(
    now=NOW,
    launch=RECORD,
    partition=Partition(3),
    kind="webhook",
    start_before=None,
    claim_expires_at=None,
    publications=0,
    key=None,
    key_limit=None,
    tenant_active=True,
    job_state=JobState.ACTIVE,
    job_paused=None,
    overlap="skip",
    calendars=(),
    others=(),
    held_before=0,
    holders=(),
    holding=0,
    queue_there=True,
    queue_paused=False,
    caps=(),
    waits=(),
    ahead=Ahead(0, 0),
    serving=Serving(1, 1, 0),
    owner="s-1-abc",
    owner_known=True,
)


def facts(launch: dict[str, Any] | None = None, **changes: Any) -> Facts:
    return replace(FACTS, launch=replace(RECORD, **(launch or {})), **changes)


def cap(*, shared: bool = False, queue: bool = True, running: int = 0, **limit: Any) -> Cap:
    return Cap(shared, queue, Limit(**limit), "", running)


PER_MINUTE = Rate(6, 60.0)
QUEUED = {"state": State.QUEUED, "queued_at": BEFORE}
RUNNING = {
    "state": State.RUNNING,
    "worker": "w-1",
    "claim": Claim(9),
    "started_at": BEFORE,
}


@pytest.mark.parametrize(
    ("found", "holds", "detail", "until"),
    [
        (facts(tenant_active=False), "tenant", "suspended", None),
        (facts({"state": State.HELD}, tenant_active=False), "tenant", "suspended", None),
        (
            facts({"state": State.HELD}, others=[OTHER], overlap="buffer_all", held_before=2),
            "overlap",
            f"The job's launch {OTHER.id} is running on w-2, and the overlap policy is buffer_all.",
            None,
        ),
        (
            facts({"state": State.HELD}, others=[Other(OTHER.id, State.DUE, None)], held_before=2),
            "overlap",
            f"The job's launch {OTHER.id} is due, and the overlap policy is skip. 2 of the job are",
            None,
        ),
        (facts({"state": State.HELD}), "overlap", "in its next turn", None),
        (facts(start_before=BEFORE), "start_deadline", "has passed", BEFORE),
        (facts(QUEUED, start_before=NOW), "start_deadline", "has passed", NOW),
        (
            facts({"attempt": 3, "failures": 2, "due_at": SOON, "result": {"outcome": "http_500"}}),
            "retry",
            "Attempt 3 (2 of 5 failures, the last http_500) is due later.",
            SOON,
        ),
        (facts(queue_there=False), "queue", "no queue default", None),
        (facts(queue_paused=True), "queue", "by an operator, for everybody", None),
        (facts(QUEUED, queue_paused=True), "queue", "by an operator", None),
        (facts(caps=[cap(shared=True, paused=True)]), "queue", "for everybody", None),
        (facts(caps=[cap(paused=True)]), "queue", "The tenant's part of the queue default", None),
        (
            facts(caps=[Cap(False, True, Limit(paused=True), "a bad deploy", 0)]),
            "queue",
            "paused (a bad deploy)",
            None,
        ),
        (
            facts(caps=[cap(queue=False, running=5, max_running=5)]),
            "tenant_cap",
            "The tenant runs 5 of at most 5.",
            None,
        ),
        (
            facts(caps=[cap(shared=True, running=7, max_running=5)]),
            "queue_cap",
            "The queue runs 7 of at most 5.",
            None,
        ),
        (
            facts(
                QUEUED,
                caps=[
                    cap(shared=True, running=5, max_running=100),
                    cap(running=2, max_running=2),
                ],
            ),
            "queue_cap",
            "The tenant in this queue runs 2 of at most 2.",
            None,
        ),
        (
            facts(caps=[cap(rate=PER_MINUTE, tokens=0.5, filled_at=NOW)]),
            "rate",
            "The tenant in this queue may start 6 in 60 s, and has.",
            NOW + timedelta(seconds=5),
        ),
        (
            facts(
                {"due_at": SOON},
                caps=[cap(rate=PER_MINUTE, tokens=0.9, filled_at=BEFORE)],
                waits=[Wait(False, QUEUE, RATE)],
            ),
            "rate",
            "others come first",
            SOON,
        ),
        (
            facts(key="eu", key_limit=1, holding=1, holders=[OTHER]),
            "concurrency",
            f"1 of 1 run under the key eu: launch {OTHER.id} on w-2.",
            None,
        ),
        (facts({"due_at": SOON}), "due", "not due yet.", SOON),
        (
            facts({"due_at": SOON, "attempt": 2}, waits=[Wait(False, TENANT, MAX_RUNNING)]),
            "due",
            "It waits for a place under a limit; asked again",
            SOON,
        ),
        (facts(owner=None), "partition", "No scheduler owns partition 3.", None),
        (
            facts(ahead=Ahead(12, 0)),
            "relay",
            "12 of class normal of the queue default in its partition became due before it",
            None,
        ),
        (facts(ahead=Ahead(MANY, 0)), "relay", f"{MANY} or more", None),
        (facts(owner_known=False, owner=None), "relay", "0 of class", None),
        (facts(QUEUED, serving=Serving(0, 0, 0)), "worker", "No worker serves the queue", None),
        (facts(QUEUED, serving=Serving(0, 0, 2)), "worker", "all drain", None),
        (facts(QUEUED, serving=Serving(2, 0, 0)), "worker", "runs webhook targets", None),
        (facts(QUEUED, ahead=Ahead(0, 7)), "kafka", "7 before it", None),
        (facts(QUEUED, owner=None), "kafka", "0 before it", None),
        (facts(RUNNING, claim_expires_at=BEFORE), "claim", "claim of w-1 has expired", BEFORE),
        (
            facts(RUNNING | {"cancel_requested": True}, claim_expires_at=SOON),
            "cancel",
            "w-1 has not ended it",
            None,
        ),
    ],
)
def test_each_check_holds(found: Facts, holds: str, detail: str, until: datetime | None) -> None:
    answer = explain(found)
    assert answer.holds == holds, answer.checks
    check = answer.checks[holds]
    assert detail in check.detail
    assert check.until == until
    assert answer.ended is None
    assert list(answer.checks) == list(CHECKS)


@pytest.mark.parametrize(
    "found",
    [
        facts(RUNNING, claim_expires_at=SOON),
        # Nothing of this stops what runs already.
        facts(
            RUNNING,
            claim_expires_at=SOON,
            tenant_active=False,
            queue_paused=True,
            job_state=JobState.PAUSED,
            start_before=BEFORE,
            caps=[cap(running=9, max_running=1, rate=PER_MINUTE, filled_at=NOW)],
            key="k",
            key_limit=1,
            holding=1,
            serving=Serving(0, 0, 0),
            owner=None,
        ),
    ],
)
def test_nothing_holds_what_runs(found: Facts) -> None:
    answer = explain(found)
    assert answer.holds is None, answer.checks
    assert answer.checks["claim"].until == SOON
    assert "w-1" in answer.checks["claim"].detail


@pytest.mark.parametrize(
    ("found", "check", "detail"),
    [
        (facts(job_state=JobState.PAUSED, job_paused={"reason": "audit"}), "job", "(audit)"),
        (facts(job_state=JobState.PAUSED), "job", "is paused, which"),
        (facts(job_state=JobState.DELETED), "job", "deleted"),
        (facts(job_state=JobState.FINISHED), "job", "finished"),
        (facts(), "calendar", "no calendars"),
        (facts(calendars=("holidays", "freeze")), "calendar", "planned: holidays, freeze."),
        (facts({"origin": "manual:1"}, calendars=("holidays",)), "calendar", "by hand"),
        (facts(start_before=SOON), "start_deadline", "must start before"),
        (facts({"attempt": 2}, start_before=BEFORE), "start_deadline", "in time"),
        (facts({"attempt": 2}), "retry", "may go on"),
        (facts(caps=[cap(queue=False, running=4, max_running=5)]), "tenant_cap", "4 of at most 5"),
        (facts(caps=[cap(rate=PER_MINUTE, tokens=1, filled_at=NOW)]), "rate", "may now"),
        (facts(caps=[cap(rate=PER_MINUTE)]), "rate", "may now"),
        (facts(key="eu", key_limit=2, holding=1), "concurrency", "1 of 2"),
        (facts(QUEUED, publications=1), "relay", "published once"),
        (facts(QUEUED, publications=3), "relay", "published 3 times"),
        (facts(QUEUED, serving=Serving(9, 4, 1)), "worker", "are 4 workers"),
        (facts(RUNNING), "kafka", "has read"),
    ],
)
def test_what_lets_it_go_on_is_told_too(found: Facts, check: str, detail: str) -> None:
    finding = explain(found).checks[check]
    assert finding.ok is True
    assert detail in finding.detail


@pytest.mark.parametrize(
    ("launch", "ended"),
    [
        (
            {"state": State.SUCCEEDED, "attempt": 2, "result": {"outcome": "ok"}},
            Ended(State.SUCCEEDED, "ok", "ok", 2, "Attempt 2 succeeded.", NOW),
        ),
        (
            {
                "state": State.DEAD,
                "attempt": 5,
                "failures": 5,
                "result": {"outcome": "http_500", "message": "the target answered 500"},
            },
            Ended(
                State.DEAD,
                "attempts_exhausted",
                "http_500",
                5,
                "Attempts exhausted after 5 of 5 failures; the last: http_500:"
                " the target answered 500",
                NOW,
            ),
        ),
        (
            {
                "state": State.DEAD,
                "failures": 1,
                "result": {"outcome": "http_404", "retryable": False},
            },
            Ended(
                State.DEAD,
                "not_retryable",
                "http_404",
                1,
                "Not retryable after 1 of 5 failures; the last: http_404.",
                NOW,
            ),
        ),
        (
            {"state": State.ABANDONED, "failures": 1, "result": {"outcome": "timed_out"}},
            Ended(
                State.ABANDONED,
                "uncertain",
                "timed_out",
                1,
                "Uncertain after 1 of 5 failures; the last: timed_out.",
                NOW,
            ),
        ),
        (
            {"state": State.EXPIRED, "started_at": None, "result": {"outcome": "deadline"}},
            Ended(
                State.EXPIRED,
                "deadline",
                "deadline",
                0,
                "It did not start before its deadline.",
                NOW,
            ),
        ),
        (
            {"state": State.CANCELLED, "started_at": None},
            Ended(State.CANCELLED, "cancelled", None, 0, "It was cancelled.", NOW),
        ),
        (
            {
                "state": State.CANCELLED,
                "result": {"outcome": "terminated", "message": "ended for a later slot"},
            },
            Ended(State.CANCELLED, "terminated", "terminated", 1, "ended for a later slot", NOW),
        ),
    ],
)
def test_how_it_ended(launch: dict[str, Any], ended: Ended) -> None:
    answer = explain(facts({"started_at": BEFORE, "finished_at": NOW} | launch))
    assert (answer.holds, dict(answer.checks)) == (None, {})
    assert answer.ended == ended


INSTANTS = st.sampled_from([BEFORE, NOW, SOON])
LIMITS = st.builds(
    Limit,
    paused=st.booleans(),
    max_running=st.none() | st.integers(1, 3),
    rate=st.none() | st.just(PER_MINUTE),
    tokens=st.floats(-1, 2),
    filled_at=st.none() | INSTANTS,
)
CAPS = st.builds(
    Cap, st.booleans(), st.booleans(), LIMITS, st.sampled_from(["", "why"]), st.integers(0, 4)
)
WAITS = st.builds(
    Wait,
    st.booleans(),
    st.sampled_from([QUEUE, TENANT, KEY]),
    st.sampled_from([RATE, MAX_RUNNING]),
)


@given(st.data(), st.sampled_from(State))
def test_exactly_one_check_holds_what_is_open_and_does_not_run(
    data: st.DataObject, state: State
) -> None:
    draw = data.draw
    found = facts(
        {
            "state": state,
            "attempt": draw(st.integers(1, 3)),
            "due_at": draw(INSTANTS),
            "cancel_requested": draw(st.booleans()),
            "started_at": draw(st.none() | INSTANTS),
            "result": draw(st.none() | st.just({"outcome": "exit_1"})),
        },
        start_before=draw(st.none() | INSTANTS),
        claim_expires_at=draw(st.none() | INSTANTS),
        tenant_active=draw(st.booleans()),
        job_state=draw(st.sampled_from(JobState)),
        others=draw(st.sampled_from([(), (OTHER,)])),
        key=draw(st.none() | st.just("k")),
        holding=draw(st.integers(0, 2)),
        queue_there=draw(st.booleans()),
        queue_paused=draw(st.booleans()),
        caps=draw(st.lists(CAPS, max_size=3)),
        waits=draw(st.lists(WAITS, max_size=2)),
        serving=Serving(*draw(st.tuples(*[st.integers(0, 2)] * 3))),
        owner=draw(st.none() | st.just("s")),
        owner_known=draw(st.booleans()),
    )
    answer = explain(found)
    if state in (State.HELD, State.DUE, State.QUEUED):
        assert answer.holds is not None
        before = list(CHECKS)[: list(CHECKS).index(answer.holds)]
        assert all(answer.checks[name].ok is not False for name in before)
        assert answer.checks[answer.holds].ok is False
        assert answer.ended is None
    elif state is not State.RUNNING:
        assert answer.holds is None
        assert answer.ended is not None
        assert answer.ended.detail
    else:
        assert answer.holds in (None, "claim", "cancel")
