"""From wall-clock times to instants: the rules of the hour that is missing and the hour twice.

A pattern says which local times it means; a zone says which instants have them.

- A fixed time in a gap fires at the first instant after it (`after`), later by the gap's length
  (`shift`) or not at all (`skip`).
- A fixed time that occurs twice fires at its first occurrence (`first`), its second (`second`),
  or at both.
- A pattern that follows real time (`wild`) fires whenever the clock on the wall matches, so at
  both occurrences, and never for times that do not exist.
- Local times that fall on the same instant are one slot.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

from tickrail.core.zones import DAY, FAR, Piece, Zone

CYCLE: Final = 146_097 * DAY
"""One Gregorian cycle, 400 years: days, weekdays and leap years repeat; a search ends here."""

LAST_INSTANT: Final = 253_402_300_799 - 2 * DAY
"""The last Unix second that is searched: the end of year 9999 less the widest offset."""

FIRST_INSTANT: Final = -62_135_596_800 + 2 * DAY
"""The first Unix second that is searched, near the beginning of year 1."""

_WIDEST: Final = 2 * DAY
"""More seconds than any two offsets differ."""


class Gap(StrEnum):
    """What a fixed local time does on the day on which it does not exist."""

    AFTER = "after"
    SHIFT = "shift"
    SKIP = "skip"


class Fold(StrEnum):
    """At which occurrence a fixed local time that occurs twice fires."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Pattern(Protocol):
    """A set of local times, as seconds since 1970-01-01T00:00 of the wall clock."""

    @property
    def wild(self) -> bool:
        """Whether the pattern follows real time."""
        ...

    def next_local(self, at: int) -> int | None:
        """The first matching local second that is not before `at`; None within a cycle."""
        ...

    def count(self, low: int, high: int) -> int:
        """How many local seconds in `low <= second < high` match."""
        ...


class Walker:
    """A pattern in a zone under the two rules."""

    def __init__(self, pattern: Pattern, zone: Zone, gap: Gap, fold: Fold) -> None:
        self.pattern = pattern
        self.zone = zone
        self._wild = pattern.wild
        self._gap = gap
        self._fold = fold

    def next(self, after: int) -> int | None:
        """The first due instant strictly after `after`; None when there is none in a cycle."""
        start = max(after + 1, FIRST_INSTANT)
        limit = min(after + CYCLE, LAST_INSTANT)
        while start <= limit:
            piece = self.zone.piece(start)
            found, seen = self._first(piece, start)
            if found is not None:
                return found if found <= limit else None
            # No local time matches before `seen`, so nothing is due much earlier either. Close to
            # a change that cannot be said: its second pass has local times before `start`'s.
            if piece.end - start < _WIDEST:
                start = piece.end
            elif seen is None:
                return None
            else:
                start = max(piece.end, seen - _WIDEST)
        return None

    def _first(self, piece: Piece, start: int) -> tuple[int | None, int | None]:
        """The first due instant of this piece from `start` on, and the next local match."""
        low, high = self._bounds(piece, start)
        seen = self.pattern.next_local(low)
        own = seen - piece.offset if seen is not None and seen < high else None
        if not self._wild and piece.before < piece.offset and self._gap is not Gap.SKIP:
            stand_in = self._stand_in(piece, start)
            if stand_in is not None and (own is None or stand_in < own):
                return stand_in, seen
        if own is None and seen is not None and piece.end == FAR:
            return None, None
        return own, seen

    def _bounds(self, piece: Piece, start: int) -> tuple[int, int]:
        """Which local times of the piece count, as `low <= local < high`."""
        low = max(start, piece.start) + piece.offset
        high = piece.end + piece.offset
        if not self._wild:
            if self._fold is Fold.FIRST and piece.before > piece.offset:
                low = max(low, piece.start + piece.before)
            elif self._fold is Fold.SECOND and piece.after < piece.offset:
                high = piece.end + piece.after
        return low, high

    def _stand_in(self, piece: Piece, start: int) -> int | None:
        """The instant that stands in for times missing just before this piece."""
        missing, exists = piece.start + piece.before, piece.start + piece.offset
        if self._gap is Gap.AFTER:
            if start > piece.start:
                return None
            found = self.pattern.next_local(missing)
            return piece.start if found is not None and found < exists else None
        low = max(missing, start + piece.before)
        if low >= exists:
            return None
        found = self.pattern.next_local(low)
        return found - piece.before if found is not None and found < exists else None

    def is_own(self, instant: int) -> bool:
        """Whether the wall clock at this instant matches by itself, not as a stand-in."""
        local = instant + self.zone.offset(instant)
        return self.pattern.next_local(local) == local

    def count(self, after: int, until: int) -> int:
        """How many slots lie in `after < instant <= until`.

        Costs a little for each month and each change of offset in the range, not for each slot;
        only the local times inside a gap are looked at one by one (rule `shift`).
        """
        total = 0
        start = max(after + 1, FIRST_INSTANT)
        end = min(until, LAST_INSTANT) + 1
        while start < end:
            piece = self.zone.piece(start)
            total += self._count_piece(piece, start, min(end, piece.end))
            start = piece.end
        return total

    def _count_piece(self, piece: Piece, start: int, stop: int) -> int:
        low, high = self._bounds(piece, start)
        high = min(high, stop + piece.offset)
        total = self.pattern.count(low, high) if low < high else 0
        if self._wild or piece.before >= piece.offset or self._gap is Gap.SKIP:
            return total
        at: int | None = start
        while at is not None and (at := self._stand_in(piece, at)) is not None and at < stop:
            local = at + piece.offset
            own = low <= local < high and self.pattern.next_local(local) == local
            total += not own
            at += 1
        return total
