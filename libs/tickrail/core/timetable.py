"""A schedule as its calendars leave it: which slots are launched, which are left out, which move.

Under `skip` a slot that lies where a calendar forbids it is left out. Under `next_allowed` it moves
to the first allowed second after it; several that move to the same second are one slot, and so is
one that moves onto a slot which is there anyway.

**A search under calendars is bounded.** It ends 20 years after the first slot that a calendar
forbids, or behind 800 forbidden stretches in a row: no run is known then. And where the rules of
the calendars take more than 50,000 steps to be worked out, it is given up with an error; what was
worked out stays, so that the next attempt with the same calendars goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.recurrence import Missed, Slot, describe, missed, next_after
from tickrail.core.schedule_values import AnyOf, Schedule
from tickrail.core.zones import EPOCH, FAR

MAX_STRETCHES: Final = 800
"""So many forbidden stretches in a row are passed in search of a slot: two years of nights."""
_MOST_ASKED: Final = 3_200
"""So often a search asks the parts of a combination, together."""
SEARCH_YEARS: Final = 20
"""So far behind the first slot that is forbidden a search goes."""
SEARCH_STEPS: Final = 50_000
"""What the rules of the calendars may cost for one allowance, beyond what is worked out already."""
_SEARCH: Final = SEARCH_YEARS * 31_557_600
_SECOND: Final = timedelta(seconds=1)
_TICK: Final = timedelta(microseconds=1)
_FAR_SECOND: Final = 253_402_000_000
"""In the last days of year 9999."""
_FAR_INSTANT: Final = EPOCH + _FAR_SECOND * _SECOND


class OnExcluded(StrEnum):
    """What becomes of a slot that a calendar forbids."""

    SKIP = "skip"
    NEXT_ALLOWED = "next_allowed"


@dataclass(frozen=True, slots=True)
class CalendarUse:
    """The calendars that a job names: times that are left out, and those outside of which all are.

    `include` empty: every time that is not excluded is allowed; with several, one is enough.
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    on_excluded: OnExcluded = OnExcluded.SKIP

    @property
    def names(self) -> tuple[str, ...]:
        """Every calendar named, each once."""
        return tuple(dict.fromkeys((*self.exclude, *self.include)))


class Stretched(Protocol):
    """Whether a second is in a calendar, and the stretch of seconds with the same answer."""

    @property
    def inside(self) -> bool:
        """In the calendar."""
        ...

    @property
    def start(self) -> int:
        """The first second of the stretch."""
        ...

    @property
    def end(self) -> int:
        """The second after its last; at most `zones.FAR`."""
        ...


class Times(Protocol):
    """A named set of instants (`core.calendars.Calendar`)."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def steps(self) -> int:
        """What working out its rules has cost so far; it grows where a new year is asked for."""
        ...

    def stretch(self, at: int, /) -> Stretched:
        """The stretch round a Unix second; it need not be the longest one."""
        ...


class Ruling(NamedTuple):
    """Who forbids a second (None: it is allowed), in a stretch with the same answer."""

    by: str | None
    start: int
    end: int


@dataclass(frozen=True)
class Allowance:
    """The calendars of a job, ready to be asked; made anew for each decision about the job.

    `patience`: behind so many forbidden stretches in a row, a search for a slot is given up.
    """

    exclude: tuple[Times, ...] = ()
    include: tuple[Times, ...] = ()
    on_excluded: OnExcluded = OnExcluded.SKIP
    patience: int = MAX_STRETCHES
    _steps_left_at: int = field(init=False, default=0, compare=False, repr=False)
    _in_vain: dict[Schedule, tuple[datetime, datetime]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        """Count from what the calendars have cost others already."""
        object.__setattr__(self, "_steps_left_at", self.steps + SEARCH_STEPS)

    @property
    def steps(self) -> int:
        """What working out the rules of the calendars has cost up to now."""
        return sum(c.steps for c in self.exclude) + sum(c.steps for c in self.include)

    def at(self, second: int) -> Ruling:
        """Whether a Unix second is allowed.

        Raises:
            InvalidInputError: the calendars' rules cost more than `SEARCH_STEPS` for what was asked
                up to now.
        """
        if self.steps > self._steps_left_at:
            raise InvalidInputError(
                "The calendars are too costly to find a run.",
                [
                    Problem(
                        "/calendars",
                        f"cost more than {SEARCH_STEPS:,} steps before a run is found",
                        "calendars with fewer rules, or rules with fewer occurrences",
                    )
                ],
            )
        low, high = -FAR, FAR
        for calendar in self.exclude:
            found = calendar.stretch(second)
            if found.inside:
                return Ruling(calendar.name, found.start, found.end)
            low, high = max(low, found.start), min(high, found.end)
        if not self.include:
            return Ruling(None, low, high)
        found_in = [calendar.stretch(second) for calendar in self.include]
        for found in found_in:
            if found.inside:
                return Ruling(None, max(low, found.start), min(high, found.end))
        return Ruling(
            self.include[0].name,
            max(low, *(f.start for f in found_in)),
            min(high, *(f.end for f in found_in)),
        )

    def forbidden_from(self, second: int) -> int:
        """The first second of the forbidden time without a break that a forbidden second lies in.

        At most 20 years before it, and as many stretches as patience allows.
        """
        earliest = second - _SEARCH
        start = self.at(second).start
        for _ in range(self.patience):
            if start <= earliest:
                return earliest
            before = self.at(start - 1)
            if before.by is None:
                break
            start = before.start
        return start

    def forbidden_until(self, second: int) -> int:
        """The first allowed second after a forbidden one; FAR where none is known.

        The search ends 20 years ahead, in year 9999, and where patience ends.
        """
        latest = min(second + _SEARCH, _FAR_SECOND - 1)
        ruling = self.at(second)
        for _ in range(self.patience):
            if ruling.by is None:
                return ruling.start
            if ruling.end > latest:
                break
            ruling = self.at(ruling.end)
        return FAR


@dataclass(frozen=True)
class Timetable:
    """A schedule under an allowance; without one, the schedule itself."""

    schedule: Schedule
    allowance: Allowance | None = None

    def next_after(self, after: datetime) -> datetime | None:
        """The first slot to launch strictly after an instant; None where none is found.

        Without calendars the search ends 400 years ahead. Under calendars it ends 20 years behind
        the first slot that one of them forbids, and where the allowance's patience ends.

        Raises:
            InvalidInputError: the rules of the calendars cost too much to be worked out so far.
        """
        allowance = self.allowance
        if allowance is None:
            return next_after(self.schedule, after)
        if allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
            return self._next_moved(allowance, after)
        low, high = allowance._in_vain.get(self.schedule, (after, after))  # noqa: SLF001 - its memory, of searches
        if low <= after < high:
            return None
        found, reached = self._next_allowed(allowance, after)
        if found is None:
            # The decision that asks will ask again, from a little later on.
            allowance._in_vain[self.schedule] = (after, reached)  # noqa: SLF001 - as above
        return found

    def _next_allowed(
        self, allowance: Allowance, after: datetime
    ) -> tuple[datetime | None, datetime]:
        """The first slot that is allowed, and up to where it was looked for."""
        at, latest = after, FAR
        parts = len(self.schedule.parts) if isinstance(self.schedule, AnyOf) else 1
        for _ in range(min(allowance.patience, _MOST_ASKED // parts)):
            slot = next_after(self.schedule, at)
            if slot is None or (second := _second(slot)) > latest:
                break
            ruling = allowance.at(second)
            if ruling.by is None:
                return slot, slot
            latest = min(latest, second + _SEARCH)
            if ruling.end > latest:
                break
            at = _instant(ruling.end) - _TICK
        return None, at

    def _next_moved(self, allowance: Allowance, after: datetime) -> datetime | None:
        second = _second(after)
        slot = self._first_waiting(allowance, second, after)
        if slot is None or allowance.at(_second(slot)).by is None:
            return slot
        moved = allowance.forbidden_until(max(_second(slot), second))
        return None if moved >= FAR else _instant(moved)

    def _first_waiting(self, allowance: Allowance, second: int, after: datetime) -> datetime | None:
        """The first slot behind an instant, or before it in the same forbidden time."""
        ruling = allowance.at(second)
        if ruling.by is None:
            return next_after(self.schedule, after)
        # Most often the stretch itself holds one; walking back to where it all began takes longer.
        slot = self._next_since(max(ruling.start, second - _SEARCH), after)
        if slot is not None and slot <= after:
            return slot
        return self._next_since(allowance.forbidden_from(second), after)

    def _next_since(self, second: int, after: datetime) -> datetime | None:
        return next_after(self.schedule, min(after, _instant(second) - _TICK))

    def missed(self, after: datetime, until: datetime, limit: int) -> Missed | None:
        """The slots to launch in `after < slot <= until`, as `recurrence.missed`."""
        if self.allowance is None:
            return missed(self.schedule, after, until, limit)
        first = self.next_after(after)
        if first is None or first > until:
            return None
        tally = _Tally(max(1, limit))
        moved: int | None = None
        for forbidden, low, high in self._pieces(self.allowance, after, until):
            if not forbidden:
                tally.add(missed(self.schedule, low, high, limit))
            elif self.allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
                slot = next_after(self.schedule, low)
                if slot is None or slot > high or (moved is not None and _second(slot) < moved):
                    continue  # no slot, or one that moves to where those before it moved
                # A slot at or before `after` is in the forbidden time that this instant lies in.
                moved = self.allowance.forbidden_until(max(_second(slot), _second(after)))
                tally.add(self._moved_to(moved, after, until))
        return tally.result()

    def excluded(self, after: datetime, until: datetime, limit: int) -> Missed | None:
        """The slots that a calendar leaves out in `after < slot <= until`."""
        allowance = self.allowance
        if allowance is None or allowance.on_excluded is not OnExcluded.SKIP:
            return None
        tally = _Tally(max(1, limit))
        for forbidden, low, high in self._pieces(allowance, after, until):
            if forbidden:
                tally.add(missed(self.schedule, low, high, limit))
        return tally.result()

    def upcoming(self, after: datetime, n: int) -> list[Slot]:
        """The next n slots with notes, those that a calendar leaves out among them."""
        found: list[Slot] = []
        at: datetime | None = after
        while len(found) < n and at is not None:
            at = self._next_shown(at)
            if at is not None:
                found.append(self.describe(at))
        return found

    def _next_shown(self, after: datetime) -> datetime | None:
        if self.allowance is not None and self.allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
            return self.next_after(after)
        return next_after(self.schedule, after)

    def describe(self, slot: datetime) -> Slot:
        """How a slot is shown: `excluded:<calendar>`, `moved_by_calendar:<calendar>`."""
        shown = describe(self.schedule, slot)
        allowance = self.allowance
        if allowance is None:
            return shown
        if allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
            if next_after(self.schedule, slot - _TICK) == slot:
                return shown
            by = allowance.at(_second(slot) - 1).by
            notes = tuple(n for n in shown.notes if n != "moved_by_gap")
            return replace(shown, notes=(*notes, f"moved_by_calendar:{by}"))
        by = allowance.at(_second(slot)).by
        return shown if by is None else replace(shown, notes=(*shown.notes, f"excluded:{by}"))

    def allowed_until(self, slot: datetime) -> datetime:
        """The end of the allowed time that a slot lies in."""
        if self.allowance is None:
            return _FAR_INSTANT
        return _instant(min(self.allowance.at(_second(slot)).end, _FAR_SECOND))

    def _pieces(
        self, allowance: Allowance, after: datetime, until: datetime
    ) -> Iterator[tuple[bool, datetime, datetime]]:
        """The stretches of a range that may hold slots: forbidden or not, `low < slot <= high`."""
        low = after
        if allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
            second = _second(after)
            if allowance.at(second).by is not None:
                low = min(low, _instant(allowance.forbidden_from(second)) - _TICK)
        while (slot := next_after(self.schedule, low)) is not None and slot <= until:
            ruling = allowance.at(_second(slot))
            high = min(_instant(ruling.end) - _TICK, until)
            yield ruling.by is not None, max(low, _instant(ruling.start) - _TICK), high
            low = high

    def _moved_to(self, second: int, after: datetime, until: datetime) -> Missed | None:
        """The slot that those of a forbidden time move to, where no other slot is."""
        if second >= FAR:
            return None
        moved = _instant(second)
        if not after < moved <= until or next_after(self.schedule, moved - _TICK) == moved:
            return None
        return Missed(1, (moved,), (moved,))


class _Tally:
    """Runs of slots put together, in order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._oldest: list[datetime] = []
        self._newest: list[datetime] = []
        self._exact = True

    def add(self, run: Missed | None) -> None:
        if run is None:
            return
        if run.count == 1 and self._newest and self._newest[-1] == run.first:
            return  # two forbidden stretches side by side move their slots to one second
        self._count += run.count
        self._exact = self._exact and run.exact
        self._oldest += run.oldest[: self._limit - len(self._oldest)]
        self._newest = [*self._newest, *run.newest][-self._limit :]

    def result(self) -> Missed | None:
        if not self._count:
            return None
        return Missed(self._count, tuple(self._oldest), tuple(self._newest), self._exact)


def _second(instant: datetime) -> int:
    return (instant - EPOCH) // _SECOND


def _instant(second: int) -> datetime:
    if second >= _FAR_SECOND:
        return _FAR_INSTANT
    return EPOCH + max(second, -62_135_000_000) * _SECOND
