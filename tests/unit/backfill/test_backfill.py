"""The next slots of a backfill: what is launched, left alone, waited for, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.backfill import (
    Backfill,
    BackfillSituation,
    BackfillState,
    BackfillStep,
    Existing,
    has_past_slots,
    range_slots,
    step,
    upcoming_slots,
)
from tickrail.core.definition import Plan, parse_plan
from tickrail.core.ids import JobId
from tickrail.core.policies import CatchUpOrder

JOB = JobId(UUID(int=1))
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLDEST = NOW - timedelta(days=30)
EVERY = [DAY + n * HOUR for n in range(6)]


def plan_of(**fields: Any) -> Plan:
    document = {"schedule": {"cron": "0 * * * *"}, "overlap": "allow", **fields}
    return parse_plan(document, job=JOB, now=NOW)


def backfill(**changes: Any) -> Backfill:
    """Of the first six hours of a day."""
    found = Backfill(
        UUID(int=9), DAY, DAY + 6 * HOUR, CatchUpOrder.OLDEST, Existing.LEAVE, None, 10, None, 6,
        NOW,
    )  # fmt: skip
    return replace(found, **changes)


def decide(
    b: Backfill,
    plan: Plan | None = None,
    *,
    existing: Sequence[datetime] = (),
    opened: int = 0,
    own: int = 0,
    next_run_at: datetime | None = None,
    limit: int = 100,
    now: datetime = NOW,
    oldest: datetime = OLDEST,
) -> BackfillStep:
    plan = plan or plan_of()
    upcoming = upcoming_slots(plan, b, next_run_at, limit)
    return step(plan, b, upcoming, BackfillSituation(opened, own, set(existing), oldest), now)


def apply(b: Backfill, s: BackfillStep) -> Backfill:
    """The row after the step."""
    return replace(
        b, total=s.total, next_at=s.next_at, cursor_at=s.cursor_at,
        launched=b.launched + len(s.launches), left_alone=b.left_alone + s.left_alone,
    )  # fmt: skip


def at(s: BackfillStep) -> list[int]:
    """The hours launched."""
    return [x.scheduled_at.hour for x in s.launches]


ROWS: list[tuple[str, Backfill, dict[str, Any], list[int], int]] = [
    ("all at once", backfill(), {}, [0, 1, 2, 3, 4, 5], 0),
    ("newest first", backfill(order=CatchUpOrder.NEWEST), {}, [5, 4, 3, 2, 1, 0], 0),
    ("a launch is there", backfill(), {"existing": EVERY[1:3]}, [0, 3, 4, 5], 2),
    (
        "launched again when asked",
        backfill(existing=Existing.LAUNCH), {"existing": EVERY}, [0, 1, 2, 3, 4, 5], 0,
    ),
    ("at most two", backfill(max_count=2), {"existing": EVERY[:1]}, [1, 2], 1),
    ("two of three have been", backfill(max_count=3, launched=2, cursor_at=EVERY[1]), {}, [2], 0),
    ("three open at most", backfill(max_open=3), {}, [0, 1, 2], 0),
    ("room for one", backfill(max_open=3), {"own": 2, "opened": 9}, [0], 0),
    ("no room", backfill(max_open=3), {"own": 3}, [], 0),
    ("goes on", backfill(cursor_at=EVERY[3]), {}, [4, 5], 0),
    (
        "goes on, newest first",
        backfill(order=CatchUpOrder.NEWEST, cursor_at=EVERY[2]), {}, [1, 0], 0,
    ),
    ("few at once", backfill(), {"limit": 2}, [0, 1], 0),
    ("fell out of the history", backfill(), {"oldest": EVERY[2]}, [2, 3, 4, 5], 2),
    ("the schedule is still to decide", backfill(), {"next_run_at": EVERY[4]}, [0, 1, 2, 3], 0),
    (
        "newest first waits for it",
        backfill(order=CatchUpOrder.NEWEST), {"next_run_at": EVERY[4]}, [], 0,
    ),
    ("the schedule is past it", backfill(), {"next_run_at": NOW}, [0, 1, 2, 3, 4, 5], 0),
    ("one by one", backfill(), {"plan": plan_of(overlap="skip")}, [0], 0),
    ("one is open", backfill(), {"plan": plan_of(overlap="buffer_all"), "opened": 1}, [], 0),
    (
        "what is left alone does not wait",
        backfill(),
        {"plan": plan_of(overlap="skip"), "opened": 1, "existing": EVERY[:3]}, [], 3,
    ),
    (
        "before the job's beginning",
        backfill(), {"plan": plan_of(starts_at="2026-03-01T02:00:00Z")}, [2, 3, 4, 5], 0,
    ),
    (
        "after its end",
        backfill(), {"plan": plan_of(ends_at="2026-03-01T02:00:00Z")}, [0, 1, 2], 0,
    ),
    ("launches of max_launches are others", backfill(), {"plan": plan_of(max_launches=1)},
     [0, 1, 2, 3, 4, 5], 0),
    ("one a minute", backfill(per_minute=1), {}, [0], 0),
    ("not yet", backfill(per_minute=1, next_at=NOW + HOUR), {}, [], 0),
    ("two a second", backfill(per_minute=120, next_at=NOW - HOUR), {}, [0, 1, 2], 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("b", "given_", "launched", "left"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_a_step(b: Backfill, given_: dict[str, Any], launched: list[int], left: int) -> None:
    found = decide(b, **given_)
    assert (at(found), found.left_alone) == (launched, left)
    handled = [x.scheduled_at for x in found.launches]
    if launched and not left:
        assert found.cursor_at == handled[-1]
    assert all(x.due_at <= NOW for x in found.launches)


@pytest.mark.parametrize(
    ("b", "given_", "state", "more"),
    [
        (backfill(), {}, "running", False),
        (backfill(cursor_at=EVERY[5]), {}, "finished", False),
        (backfill(cursor_at=EVERY[5]), {"own": 1}, "running", False),
        (backfill(cursor_at=EVERY[5]), {"opened": 1}, "finished", False),
        (backfill(), {"existing": EVERY}, "finished", False),
        (backfill(), {"existing": EVERY[:2], "limit": 2}, "running", True),
        (backfill(max_count=2, launched=2, cursor_at=EVERY[1]), {}, "finished", False),
        (backfill(max_count=2, launched=2, cursor_at=EVERY[1]), {"own": 1}, "running", False),
        (backfill(max_open=1), {"own": 1}, "running", False),
        (backfill(), {"next_run_at": EVERY[0]}, "running", False),
        (backfill(cursor_at=EVERY[3]), {"next_run_at": EVERY[4]}, "running", False),
    ],
)
def test_when_it_is_over(b: Backfill, given_: dict[str, Any], state: str, more: bool) -> None:
    found = decide(b, **given_)
    assert (found.state.value, found.more) == (state, more)


def test_a_rate_is_kept_over_passes_and_made_up_for_over_a_second_only() -> None:
    b, launches, now = backfill(per_minute=6, existing=Existing.LAUNCH), [], NOW
    for _ in range(100):
        found = decide(b, now=now)
        launches += [(x.scheduled_at, now) for x in found.launches]
        b, now = apply(b, found), now + timedelta(seconds=1)
        while b.next_at > now:
            now += timedelta(seconds=1)
    when = [moment for _, moment in launches]
    assert [slot for slot, _ in launches] == EVERY
    waits = [(y - x).total_seconds() for x, y in pairwise(when)]
    assert waits == [10.0] * 5
    late = decide(backfill(per_minute=60), now=NOW + HOUR)
    assert at(late) == [0, 1]


def test_an_edit_on_the_way_corrects_the_total() -> None:
    b = apply(backfill(), decide(backfill(), limit=2))
    plan = plan_of(schedule={"cron": "0 */2 * * *"})
    b = apply(b, decide(b, plan))
    found = decide(b, plan)
    assert (found.state, found.total, b.launched) == (BackfillState.FINISHED, 4, 4)


def test_the_slot_that_the_job_waits_for_is_found_behind_its_jitter() -> None:
    plan = plan_of(jitter="30m")
    # Due at 4:17 because of the slot of 4:00.
    found = upcoming_slots(plan, backfill(), EVERY[4] + timedelta(minutes=17), 100)
    assert [x.hour for x in found.slots] == [0, 1, 2, 3]
    assert found.waits


@pytest.mark.parametrize(
    ("schedule", "has"),
    [
        ({"cron": "0 * * * *"}, True),
        ({"every": "1h", "anchor": "2026-01-01T00:00:00Z"}, True),
        (
            {"every": "1h", "anchor": "2026-01-01T00:00:00Z", "measured_from": "completion"},
            False,
        ),
        ({"at": "2026-03-01T00:00:00Z"}, True),
        ({"any_of": [{"cron": "0 * * * *"}, {"at": "2026-03-01T00:00:00Z"}]}, True),
        (None, False),
    ],
)
def test_which_schedules_have_slots_in_the_past(schedule: Any, has: bool) -> None:
    assert has_past_slots(plan_of(schedule=schedule).schedule) is has


def test_a_range_of_a_schedule_is_counted() -> None:
    found = range_slots(plan_of(), DAY, DAY + 6 * HOUR, 3)
    assert found is not None
    assert (found.count, found.first, found.last) == (6, EVERY[0], EVERY[5])
    assert range_slots(plan_of(), DAY + timedelta(minutes=1), DAY + HOUR, 3) is None
    assert range_slots(plan_of(schedule=None), DAY, NOW, 3) is None


steps = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 9),
        "ended": st.integers(0, 5),
        "crash": st.booleans(),
        "seconds": st.integers(0, 90),
        "known": st.integers(0, 40),
    }
)


@given(
    st.builds(
        backfill,
        order=st.sampled_from(CatchUpOrder),
        existing=st.sampled_from(Existing),
        max_count=st.none() | st.integers(1, 40),
        max_open=st.integers(1, 5),
        per_minute=st.none() | st.integers(1, 600),
        until_at=st.just(DAY + 30 * HOUR),
    ),
    st.sampled_from(["allow", "skip"]),
    st.sets(st.integers(0, 29)),
    st.lists(steps, max_size=60),
)
def test_each_slot_is_launched_or_left_alone_once_in_any_order_of_passes(
    b: Backfill, overlap: str, there: set[int], passes: list[dict[str, Any]]
) -> None:
    """Passes of any size, ends of launches at any time, crashes before the commit."""
    plan = plan_of(overlap=overlap)
    now = DAY + 60 * HOUR
    existing = {DAY + n * HOUR for n in there}
    launched: list[datetime] = []
    left = opened = 0
    state = BackfillState.RUNNING
    edge: datetime | None = DAY
    for n in range(len(passes) + 200):
        more = passes[n] if n < len(passes) else None
        p = more or {"limit": 5, "ended": 9, "crash": False, "seconds": 60, "known": 99}
        now += timedelta(seconds=p["seconds"])
        opened = max(0, opened - p["ended"])
        assert edge is not None
        edge = max(edge, DAY + p["known"] * HOUR)
        if state is not BackfillState.RUNNING or b.next_at > now:
            continue
        found = decide(
            b, plan, existing=[*existing], opened=opened, own=opened, now=now,
            limit=p["limit"], next_run_at=edge, oldest=DAY,
        )  # fmt: skip
        if p["crash"]:
            continue
        slots = [x.scheduled_at for x in found.launches]
        assert all(slot < edge for slot in slots)
        launched += slots
        opened += len(slots)
        assert opened <= (b.max_open if overlap == "allow" else 1)
        left += found.left_alone
        b, state = apply(b, found), found.state
        if overlap == "allow" and b.existing is Existing.LEAVE:
            existing |= set(slots)  # as the table of launches shows them from here on
    assert state is BackfillState.FINISHED
    assert launched == sorted(set(launched), reverse=b.order is CatchUpOrder.NEWEST)
    assert (b.launched, b.left_alone) == (len(launched), left)
    wanted = [DAY + n * HOUR for n in range(30)]
    free = [
        s for s in wanted if b.existing is Existing.LAUNCH or s.hour + (s.day - 1) * 24 not in there
    ]
    if b.max_count is None or len(free) < b.max_count:
        assert sorted(launched) == free
        assert len(launched) + left == 30 == b.total
    else:
        assert len(launched) == b.max_count
        assert set(launched) <= set(free)
    assert b.remaining >= 0


def test_the_newest_slots_of_a_combination_are_found_from_the_end() -> None:
    parts = [{"cron": "* * * * * *"}, {"every": "7s", "anchor": "2026-01-01T00:00:00Z"}]
    plan = plan_of(schedule={"any_of": parts})
    b = backfill(order=CatchUpOrder.NEWEST, until_at=DAY + timedelta(days=1))
    found = upcoming_slots(plan, b, None, 200)
    last = b.until_at - timedelta(seconds=1)
    assert list(found.slots) == [last - timedelta(seconds=n) for n in range(200)]
    sparse = plan_of(schedule={"any_of": [{"cron": "0 3 * * *"}, {"cron": "0 4 1 * *"}]})
    found = upcoming_slots(sparse, b, None, 200)
    assert [x.hour for x in found.slots] == [4, 3]
    assert found.last
