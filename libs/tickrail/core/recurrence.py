"""When a schedule is due: next, upcoming, and what was missed between two instants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final

from tickrail.core.calendar_pattern import CalendarPattern
from tickrail.core.cron import CronExpression
from tickrail.core.schedule_values import (
    AnyOf,
    At,
    CalendarInterval,
    Cron,
    Every,
    MeasuredFrom,
    Schedule,
)
from tickrail.core.walk import LAST_INSTANT, Walker
from tickrail.core.zones import DAY, EPOCH, Zone, local_text, zone

_SECOND: Final = timedelta(seconds=1)
_LATEST: Final = EPOCH + LAST_INSTANT * _SECOND
WALK_LIMIT: Final = 10_000
"""So many slots of an any-of combination are looked at one by one before `missed` estimates."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A due instant as shown: `local` is the wall clock with its offset.

    Notes: `moved_by_gap` (stands in for a local time that does not exist), `first_pass` and
    `second_pass` (the local time occurs twice).
    """

    at: datetime
    local: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """The slots in a range: how many, and the first and last few of them, in order.

    `exact` is False where more than one part of a combination has more slots than are worth
    walking; `count` then may hold slots that such parts share more than once.
    """

    count: int
    oldest: tuple[datetime, ...]
    newest: tuple[datetime, ...]
    exact: bool = True

    @property
    def first(self) -> datetime:
        """The first slot."""
        return self.oldest[0]

    @property
    def last(self) -> datetime:
        """The last slot."""
        return self.newest[-1]


def slot_of(due: datetime) -> datetime:
    """The whole second of a due instant: the instant in the launch's key."""
    return due.replace(microsecond=0)


def next_after(s: Schedule, after: datetime) -> datetime | None:
    """The first due instant strictly after `after`, in UTC; None when there is none.

    Whole seconds, except that `At` keeps its fraction. A search looks ahead 400 years at most.
    """
    if isinstance(s, Cron | CalendarInterval):
        past = after - EPOCH
        found = walker_of(s).next(past.days * DAY + past.seconds)
        return None if found is None else EPOCH + timedelta(found // DAY, found % DAY)
    if isinstance(s, At):
        return s.instant.astimezone(UTC) if s.instant > after else None
    if isinstance(s, AnyOf):
        return min((n for p in s.parts if (n := next_after(p, after)) is not None), default=None)
    return _next_every(s, after)


def _next_every(s: Every, after: datetime) -> datetime | None:
    anchor = s.anchor.astimezone(UTC)
    if after < anchor:
        return anchor
    if s.measured_from is MeasuredFrom.SCHEDULE:
        due = after - (after - anchor) % s.period
    else:
        due = slot_of(after.astimezone(UTC) + timedelta(microseconds=999_999))
    if due > _LATEST - s.period:
        return None
    return (due + s.period).astimezone(UTC)


def latest_at_or_before(s: Schedule, instant: datetime, since: datetime) -> datetime | None:
    """The last due instant at or before `instant` and after `since`; None when there is none."""
    found = missed(s, since, instant, 1)
    return None if found is None else found.last


def missed(s: Schedule, after: datetime, until: datetime, limit: int) -> Missed | None:
    """The slots in `after < due <= until`; None when there are none.

    Args:
        s: the schedule.
        after: the last instant that is dealt with.
        until: the last instant that counts.
        limit: how many of the oldest and of the newest to name, at least one.

    The cost does not follow the number of slots: cron costs a step for each month and change of
    offset, times some 60 for the newest; a calendar interval a step for each slot, at most one a
    day; a combination looks at `WALK_LIMIT` slots at most, then at its parts.
    """
    first = next_after(s, after)
    if first is None or first > until:
        return None
    limit = max(1, limit)
    if isinstance(s, AnyOf):
        return _missed_any(s, after, until, limit)
    if isinstance(s, CalendarInterval):
        every = list(_walk(s, after, until))
        return Missed(len(every), tuple(every[:limit]), tuple(every[-limit:]))
    count = _count(s, after, until)
    oldest = tuple(islice(_walk(s, after, until), limit))
    if count <= limit:
        return Missed(count, oldest, oldest)
    return Missed(count, oldest, tuple(_walk(s, _before_last(s, after, until, limit), until)))


def _missed_any(s: AnyOf, after: datetime, until: datetime, limit: int) -> Missed:
    walked = tuple(islice(_walk(s, after, until), WALK_LIMIT + 1))
    if len(walked) <= WALK_LIMIT:
        return Missed(len(walked), walked[:limit], walked[-limit:])
    runs = [(m, p) for p in s.parts if (m := missed(p, after, until, limit)) is not None]
    newest = tuple(sorted({slot for m, _ in runs for slot in m.newest})[-limit:])
    runs.sort(key=lambda run: run[0].count, reverse=True)
    (densest, dense), rest = runs[0], runs[1:]
    if sum(m.count for m, _ in rest) > WALK_LIMIT:
        return Missed(sum(m.count for m, _ in runs), walked[:limit], newest, exact=False)
    # Few enough beside the densest part: those that it does not have are counted one by one.
    others = {slot for _, p in rest for slot in _walk(p, after, until)}
    tick = timedelta(microseconds=1)
    own = sum(next_after(dense, slot - tick) != slot for slot in others)
    return Missed(densest.count + own, walked[:limit], newest)


def _walk(s: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """The slots one by one."""
    at = next_after(s, after)
    while at is not None and at <= until:
        yield at
        at = next_after(s, at)


def _count(s: Schedule, after: datetime, until: datetime) -> int:
    """How many slots a schedule that is no combination has in the range."""
    if isinstance(s, Cron):
        return walker_of(s).count((after - EPOCH) // _SECOND, (until - EPOCH) // _SECOND)
    if isinstance(s, Every) and s.measured_from is MeasuredFrom.SCHEDULE:
        low = max(-1, (after - s.anchor) // s.period)
        return max(0, (until - s.anchor) // s.period - low)
    return 1  # one instant, or an interval from the end of a run that was not


def _before_last(s: Schedule, after: datetime, until: datetime, n: int) -> datetime:
    """An instant behind which exactly the last n slots up to `until` lie."""
    if not isinstance(s, Cron):
        if isinstance(s, Every) and s.measured_from is MeasuredFrom.SCHEDULE:
            return max(after, until - (until - s.anchor) % s.period - (n - 1) * s.period - _SECOND)
        return after
    walker = walker_of(s)
    low, high = (after - EPOCH) // _SECOND, (until - EPOCH) // _SECOND
    if walker.count(low, high) <= n:
        return after
    end, step = high, 60
    while high - step > low and walker.count(high - step, end) < n:
        step *= 2
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if walker.count(middle, end) >= n:
            low = middle
        else:
            high = middle
    return EPOCH + timedelta(seconds=low)


def matches(s: Cron, instant: datetime) -> bool:
    """Whether an instant is a slot, the one that stands in for a missing local time included."""
    at = instant.astimezone(UTC)
    return at.microsecond == 0 and next_after(s, at - _SECOND) == at


def upcoming(s: Schedule, after: datetime, n: int) -> list[Slot]:
    """The next n slots after an instant, with notes; fewer when there are no more."""
    found: list[Slot] = []
    at: datetime | None = after
    while len(found) < n and at is not None:
        at = next_after(s, at)
        if at is not None:
            found.append(describe(s, at))
    return found


def describe(s: Schedule, due: datetime) -> Slot:
    """How a due instant of this schedule is shown.

    The instant is the slot's, in whole seconds: what is due at a fraction of one is named by it.
    One that a calendar moved is no slot of any part; the first part's zone shows it.
    """
    if isinstance(s, AnyOf):
        before = due - timedelta(microseconds=1)
        s = next((p for p in s.parts if next_after(p, before) == due), s.parts[0])
    seconds, micros = (due - EPOCH) // _SECOND, due.microsecond
    where = zone("UTC" if isinstance(s, Every) else s.zone)
    notes = list(_passes(where, seconds))
    if isinstance(s, Cron | CalendarInterval):
        if not walker_of(s).is_own(seconds):
            notes.insert(0, "moved_by_gap")
    elif (
        isinstance(s, At)
        and s.local is not None
        and not local_text(seconds, where, micros).startswith(s.local)
    ):
        notes.insert(0, "moved_by_gap")
    return Slot(slot_of(due), local_text(seconds, where), tuple(notes))


def _passes(where: Zone, seconds: int) -> Iterator[str]:
    """Which occurrence this instant is, where its local time occurs twice."""
    piece = where.piece(seconds)
    if seconds - piece.start < piece.before - piece.offset:
        yield "second_pass"
    elif piece.end - seconds <= piece.offset - piece.after:
        yield "first_pass"


@lru_cache(maxsize=16_384)
def walker_of(s: Cron | CalendarInterval) -> Walker:
    """The schedule ready to walk, cached.

    Raises:
        CronError: not a legal expression.
        UnknownZoneError: no such zone.
    """
    if isinstance(s, Cron):
        return Walker(_expression(s), zone(s.zone), s.gap, s.fold)
    return Walker(CalendarPattern(s), zone(s.zone), s.gap, s.fold)


def _expression(s: Cron) -> CronExpression:
    return CronExpression.parse(s.expression, hash_key=s.hash_key)
