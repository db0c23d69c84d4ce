"""What the load tests call lost, doubled or broken: each rule with a history that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from loadtest.plant import JOURNAL, LAUNCHES, PLANTS, plant_start
from loadtest.receiver import Start
from loadtest.verdict import Facts, Launch, Threshold, judge, minutes

DAY, CALL, MADE = "day", "call", "made"
SLOT = 1_767_744_000  # a whole minute


def launch(name: str, job: str, slot: int, **more: Any) -> Launch:
    at = float(slot)
    one = Launch(
        name, job, "schedule", "succeeded", 1, 0, 12, slot, at, at + 0.1, at + 0.2, at + 0.3
    )
    return one._replace(**more)


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def sound() -> Facts:
    """A job of nothing, one with a call that was refused once, a made one, and a trigger."""
    return Facts(
        expected={DAY: {SLOT, SLOT + 5}, CALL: {SLOT}},
        made={MADE: SLOT - 10.0},
        last=SLOT + 30,
        launches=[
            launch("a", DAY, SLOT),
            launch("b", DAY, SLOT + 5),
            launch("c", CALL, SLOT, attempt=2, failures=1),
            launch("d", MADE, SLOT),
            launch("e", DAY, SLOT + 7, origin="manual:1"),
        ],
        skipped={},
        versions={DAY: 1, CALL: 1, MADE: 2},
        said=[
            {"what": "created", "job": MADE},
            {"what": "changed", "job": MADE},
            {"what": "triggered", "launch": "e", "job": DAY},
            {"what": "herd", "jobs": [DAY]},
        ],
        starts=[Start("c", 1, 7, failed=True), Start("c", 2, 9, failed=False)],
        webhooks=frozenset({CALL}),
    )


def change(index: int, **more: Any) -> Callable[[Facts], Facts]:
    """One of the launches is otherwise."""

    def apply(facts: Facts) -> Facts:
        launches = list(facts.launches)
        launches[index] = launches[index]._replace(**more)
        return replace(facts, launches=launches)

    return apply


def without(index: int) -> Callable[[Facts], Facts]:
    return lambda f: replace(f, launches=[x for n, x in enumerate(f.launches) if n != index])


def besides(one: Launch) -> Callable[[Facts], Facts]:
    return lambda f: replace(f, launches=[*f.launches, one])


def told(**said: Any) -> Callable[[Facts], Facts]:
    return lambda f: replace(f, said=[*f.said, said])


def started(*starts: Start) -> Callable[[Facts], Facts]:
    return lambda f: replace(f, starts=list(starts))


def test_a_sound_run_breaks_nothing() -> None:
    found = judge(sound())
    assert found.breaches == []
    assert {k: found.counts[k] for k in ("slots", "calls", "promises")} == {
        "slots": 4,
        "calls": 2,
        "promises": 4,
    }


FIRST, SECOND = Start("c", 1, 7, failed=True), Start("c", 2, 9, failed=False)


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("lost", without(1)),
        ("lost", without(3)),
        ("lost", change(0, slot=SLOT + 1)),
        ("doubled", besides(launch("f", DAY, SLOT))),
        ("made up", besides(launch("f", DAY, SLOT + 1))),
        ("made up", besides(launch("f", MADE, SLOT + 3))),
        ("skipped", lambda f: replace(f, skipped={DAY: 2})),
        ("ended", change(0, state="queued")),
        ("ended", change(0, state="abandoned")),
        ("ended", change(0, state="dead", failures=3)),
        ("once", started(FIRST, FIRST, SECOND)),
        ("once", started(FIRST, SECOND, Start("c", 3, 11, failed=True))),
        ("once", started(FIRST, SECOND, Start("x", 1, 3, failed=True))),
        ("effects", started(FIRST)),
        ("effects", started(FIRST, Start("c", 2, 9, failed=True))),
        ("effects", started(Start("c", 1, 7, failed=False), SECOND)),
        ("promised", without(4)),
        ("promised", told(what="created", job="nobody's")),
        ("promised", told(what="herd", jobs=["nobody's"])),
        ("promised", told(what="changed", job=MADE)),
        ("paused", told(what="paused", job=MADE, since=iso(SLOT - 1), until=iso(SLOT + 1))),
    ],
)
def test_what_breaks_a_rule_is_found(rule: str, broken: Callable[[Facts], Facts]) -> None:
    found = judge(broken(sound()))
    assert rule in {breach.partition(":")[0] for breach in found.breaches}
    assert found.counts[rule] >= 1


@pytest.mark.parametrize(
    "right",
    [
        change(0, state="dead", failures=12),
        besides(launch("f", MADE, SLOT + 60)),  # after the end of the run
        told(what="paused", job=MADE, since=iso(SLOT + 2), until=iso(SLOT + 9)),
    ],
)
def test_what_may_be_breaks_nothing(right: Callable[[Facts], Facts]) -> None:
    assert judge(right(sound())).breaches == []


def test_many_breaches_of_a_rule_are_counted_and_some_are_shown() -> None:
    found = judge(
        replace(sound(), expected={DAY: set(range(SLOT, SLOT + 40))}, webhooks=frozenset())
    )
    shown = [breach for breach in found.breaches if breach.startswith("lost")]
    assert len(shown) == 6
    assert shown[-1] == "lost: and 33 more"
    assert found.counts["lost"] == 38


@pytest.mark.parametrize(
    ("made", "last", "slots"),
    [
        (SLOT - 10.0, SLOT + 59, {SLOT}),
        (SLOT - 10.0, SLOT + 60, {SLOT, SLOT + 60}),
        (float(SLOT), SLOT + 60, {SLOT + 60}),  # made at a slot: the next one is its first
        (SLOT + 1.0, SLOT + 30, set()),
    ],
)
def test_a_job_of_every_minute_is_due_from_the_next_one(
    made: float, last: int, slots: set[int]
) -> None:
    assert minutes(made, last) == slots


@pytest.mark.parametrize(
    ("value", "limit", "least", "kept"),
    [
        (10.0, 10.0, False, True),
        (10.1, 10.0, False, False),
        (float("inf"), 10.0, False, False),
        (float("nan"), 10.0, False, False),
        (10.0, 10.0, True, True),
        (9.9, 10.0, True, False),
        (float("nan"), 10.0, True, False),
    ],
)
def test_a_threshold_holds_up_to_its_bound(
    value: float, limit: float, least: bool, kept: bool
) -> None:
    assert Threshold("p99", value, limit, "ms", least=least).kept is kept


def test_a_threshold_says_what_it_is() -> None:
    assert str(Threshold("lag, p99", 12.5, 1000, "ms")) == "lag, p99: 12.5 ms (at most 1,000 ms)"
    assert str(Threshold("requests", 3, 30, least=True)) == "requests: 3 (at least 30)"
    assert str(Threshold("herd", 100_000, 1e5, least=True)) == "herd: 100,000 (at least 100,000)"


def test_a_fault_planted_in_the_journal_is_found() -> None:
    facts = sound()
    for what in JOURNAL:
        found = judge(replace(facts, starts=plant_start(facts.starts, what)))
        assert PLANTS[what] in {breach.partition(":")[0] for breach in found.breaches}
    with pytest.raises(ValueError, match="no attempt"):
        plant_start([Start("c", 1, 7, failed=True)], "forgotten")


def test_every_fault_can_be_planted() -> None:
    assert {*JOURNAL, *LAUNCHES} == set(PLANTS)
