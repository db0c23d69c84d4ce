"""The edges of walking and showing: the second at which a pass begins, the ends of a count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

import pytest
from tests.support.schedules import at, cron, days, refused, schedule

from tickrail.core.cron import CronExpression
from tickrail.core.recurrence import WALK_LIMIT, walker_of
from tickrail.core.schedule import (
    Cron,
    Fold,
    Gap,
    describe,
    latest_at_or_before,
    matches,
    missed,
    next_after,
    upcoming,
)
from tickrail.core.zones import EPOCH

SECOND = timedelta(seconds=1)
BERLIN = "Europe/Berlin"


def test_the_hash_is_fixed_by_vectors() -> None:
    """Part of the format: another version must not move the jobs that use `H`."""
    found = []
    for n in (1, 2):
        e = CronExpression.parse("H H H H H H", hash_key=UUID(int=n))
        masks = (e.seconds, e.minutes, e.hours, e.days.mask, e.months, e.weekdays.mask)
        found.append([mask.bit_length() - 1 for mask in masks])
    assert found == [[50, 45, 11, 13, 5, 4], [16, 22, 7, 15, 3, 5]]


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        (BERLIN, "2026-03-29T01:00Z"),
        (BERLIN, "2026-10-25T01:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
        ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
        ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ],
)
@pytest.mark.parametrize("expression", ["*/10 * * * *", "0,10,30 1-3 * * *", "45 1,2,3 * * *"])
def test_a_count_is_the_length_of_the_walk(zone: str, change: str, expression: str) -> None:
    """For windows that begin and end at, beside and between the edges of a change."""
    edges = [at(change) + timedelta(minutes=m) for m in (-130, -60, -20, 0, 10, 30, 45, 70, 130)]
    edges = [e + n * SECOND for e, n in product(edges, (-1, 0, 1))]
    for gap, fold in product(Gap, Fold):
        s = Cron(expression, zone, gap, fold)
        walker, slots, found = walker_of(s), [], edges[0]
        while found <= edges[-1]:
            following = next_after(s, found)
            assert following is not None
            slots.append(following)
            found = following
        for low, high in product(edges, edges):
            inside = sum(low < slot <= high for slot in slots)
            counted = walker.count(int(low.timestamp()), int(high.timestamp()))
            assert counted == inside, (gap, fold, low, high)


def test_which_pass_changes_with_the_second() -> None:
    s = cron("* * * * * *", BERLIN)
    change = at("2026-10-25T01:00Z")
    for seconds, note in (
        (-3601, ()),
        (-3600, ("first_pass",)),
        (-1, ("first_pass",)),
        (0, ("second_pass",)),
        (3599, ("second_pass",)),
        (3600, ()),
    ):
        assert describe(s, change + seconds * SECOND).notes == note


def test_a_combination_is_described_by_the_part_that_is_due() -> None:
    gap = {"cron": "30 2 * * *", "time_zone": BERLIN}
    other = {"cron": "45 11 * * *", "time_zone": "Asia/Tokyo"}
    for parts in ([gap, other], [other, gap]):
        moved, tokyo = upcoming(schedule({"any_of": parts}), at("2026-03-28T12:00Z"), 2)
        assert (moved.local, moved.notes) == ("2026-03-29T03:00:00+02:00", ("moved_by_gap",))
        assert (tokyo.local, tokyo.notes) == ("2026-03-29T11:45:00+09:00", ())


def test_a_stand_in_may_lie_in_a_repeat_and_its_first_note_is_that_it_moved() -> None:
    """Nothing of the kind is in the zone data; a fraction of a second names no slot."""
    (slot,) = upcoming(schedule({"at": "2026-03-29T02:30:00.25", "time_zone": BERLIN}), EPOCH, 1)
    assert slot.notes == ("moved_by_gap",)
    (slot,) = upcoming(schedule({"at": "2026-04-29T02:30:00.25", "time_zone": BERLIN}), EPOCH, 1)
    assert (slot.local, slot.notes) == ("2026-04-29T02:30:00+02:00", ())


def test_an_instant_with_a_fraction_is_no_slot_of_a_cron() -> None:
    s = cron("* * * * * *")
    assert isinstance(s, Cron)
    assert matches(s, at("2026-01-01T00:00:01Z"))
    assert not matches(s, at("2026-01-01T00:00:01.000001Z"))
    assert not matches(cron("0 0 * * *"), at("2026-01-01T00:00:01Z"))  # type: ignore[arg-type]


def test_the_latest_of_none() -> None:
    s = cron("0 0 1 1 *")
    assert latest_at_or_before(s, at("2026-03-01T00:00Z"), at("2026-02-01T00:00Z")) is None
    assert latest_at_or_before(s, at("2028-03-01T00:00Z"), at("2025-02-01T00:00Z")) == at(
        "2028-01-01T00:00Z"
    )


def test_the_second_on_a_saturday_has_the_first() -> None:
    assert days(cron("0 0 2W 5 *"), at("2026-01-01T00:00Z"), 1) == ["2026-05-01"]


def test_a_combination_of_more_slots_than_are_walked_is_counted_by_its_parts() -> None:
    """Slots that parts share are counted once, beside one part that is too dense to be walked."""
    parts = [{"cron": "* * * * * *"}, {"cron": "30 * * * * *"}, {"cron": "0 0 1 1 *"}]
    s = schedule({"any_of": parts})
    low = at("2026-03-01T00:00Z")
    for seconds in (WALK_LIMIT, WALK_LIMIT + 1, 3 * WALK_LIMIT):
        high = low + seconds * SECOND
        found = missed(s, low, high, 3)
        assert found is not None
        assert found.exact
        assert found.count == seconds
        assert list(found.oldest) == [low + n * SECOND for n in (1, 2, 3)]
        assert list(found.newest) == [high - n * SECOND for n in (2, 1, 0)]


def test_what_the_densest_part_does_not_have_is_counted_beside_it() -> None:
    parts = [{"cron": "*/2 * * * * *"}, {"cron": "15 * * * * *"}, {"cron": "30,45 * * * * *"}]
    low = at("2026-03-01T00:00Z")
    found = missed(schedule({"any_of": parts}), low, low + 60 * 600 * SECOND, 2)
    assert found is not None
    # Half of all seconds, and the odd ones of the others: 15 and 45.
    assert (found.count, found.exact) == (600 * 32, True)


def test_two_parts_too_dense_to_be_walked_say_that_they_may_be_counted_twice() -> None:
    parts = [{"cron": "* * * * * *"}, {"cron": "*/2 * * * * *"}]
    low = at("2026-03-01T00:00Z")
    for seconds, exact in ((WALK_LIMIT, True), (3 * WALK_LIMIT, False)):
        found = missed(schedule({"any_of": parts}), low, low + seconds * SECOND, 1)
        assert found is not None
        assert found.exact is exact
        assert found.count == seconds + (0 if exact else seconds // 2)


def test_line_ends_at_the_end_of_an_expression_are_not_read() -> None:
    for end in ("\n", "\r\n", "\n\n"):
        assert schedule({"cron": f"0 2 * * *{end}"}) == schedule({"cron": "0 2 * * *"})
    assert refused({"cron": "0 2\n* * *"})


def test_an_empty_time_zone_is_no_time_zone() -> None:
    for form in ({"cron": "0 0 * * *"}, {"at": "2026-10-25T02:30:00"}):
        [problem] = refused(form | {"time_zone": ""})
        assert problem.pointer == "/schedule/time_zone"
        assert "'' is not a time zone" in problem.message
    assert schedule({"cron": "0 0 * * *", "time_zone": None}) == schedule({"cron": "0 0 * * *"})


@pytest.mark.parametrize("year", [1, 9998, 9999])
def test_the_ends_of_time_do_no_harm(year: int) -> None:
    start = datetime(year, 12 if year > 1 else 1, 31 if year > 1 else 1, tzinfo=UTC)
    for s in (
        cron("0 0 * * *", "Pacific/Kiritimati"),
        schedule({"every": "1d", "anchor": "2026-01-01T00:00:00Z"}),
        schedule({"calendar": {"unit": "week", "on": "sun", "at": "02:30"}}),
    ):
        found = next_after(s, start)
        assert found is None or found > start
