"""Which offset may be committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.offsets import OffsetTracker


def test_nothing_is_committable_at_first() -> None:
    tracker = OffsetTracker(generation=3)
    assert (tracker.generation, tracker.committable(), tracker.window) == (3, None, 0)
    tracker.add(7)
    assert tracker.committable() is None


def test_the_position_is_one_past_what_is_done() -> None:
    tracker = OffsetTracker()
    for offset in (7, 8, 9):
        assert tracker.add(offset)
    assert tracker.done(7)
    assert tracker.committable() == 8
    assert tracker.done(9)
    assert tracker.committable() == 8, "8 is open"
    assert (tracker.window, tracker.open) == (2, 1)
    assert tracker.done(8)
    assert tracker.committable() == 10
    assert (tracker.window, tracker.open) == (0, 0)


def test_what_was_committed_is_not_asked_for_again() -> None:
    tracker = OffsetTracker()
    tracker.add(0)
    tracker.done(0)
    tracker.committed(1)
    assert tracker.committable() is None
    tracker.add(1)
    tracker.done(1)
    assert tracker.committable() == 2


def test_gaps_are_no_obstacle() -> None:
    tracker = OffsetTracker()
    tracker.add(5)
    tracker.add(90)
    tracker.done(5)
    assert tracker.committable() == 6
    tracker.done(90)
    assert tracker.committable() == 91


def test_an_offset_that_was_there_is_refused() -> None:
    tracker = OffsetTracker()
    assert tracker.add(5)
    assert not tracker.add(5)
    assert not tracker.add(4)
    tracker.done(5)
    assert not tracker.add(5)
    assert tracker.add(6)


def test_done_twice_or_never_added_is_ordinary() -> None:
    tracker = OffsetTracker()
    tracker.add(1)
    assert tracker.done(1)
    assert not tracker.done(1)
    assert not tracker.done(99)
    assert tracker.committable() == 2


def test_one_stuck_offset_fills_the_window_and_no_more() -> None:
    tracker = OffsetTracker(limit=1000)
    offset = 0
    tracker.add(offset)
    while not tracker.full:
        offset += 1
        tracker.add(offset)
        tracker.done(offset)
    assert (tracker.window, tracker.open, tracker.committable()) == (1000, 1, None)
    tracker.done(0)
    assert (tracker.full, tracker.committable()) == (False, 1000)


@given(st.lists(st.integers(0, 500), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_it_never_passes_an_open_offset(offsets: list[int], random: object) -> None:
    offsets.sort()
    tracker = OffsetTracker()
    for offset in offsets:
        assert tracker.add(offset)
    order = list(offsets)
    random.shuffle(order)  # type: ignore[attr-defined]
    open_ = set(offsets)
    for offset in order:
        open_.discard(offset)
        assert tracker.done(offset)
        below = min(open_, default=offsets[-1] + 1)
        done = [o for o in offsets if o < below]
        assert tracker.committable() == (done[-1] + 1 if done else None)
