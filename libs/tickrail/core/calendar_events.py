"""Events of a calendar: spans of local time, once or by a rule; and the cache of their years."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from tickrail.core.documents import Reader, type_name
from tickrail.core.durations import parse_duration
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.local_sets import Spans, Stretch, year_bounds, year_of
from tickrail.core.recurrence_rules import Recurrence, RuleError, parse_rule
from tickrail.core.zones import EPOCH, UnknownZoneError, Zone, zone

MAX_EVENTS: Final = 2000
MAX_STEPS: Final = 50_000
"""What the rules of a calendar may cost for the next years, in sum."""
YEARS_AHEAD: Final = 3
_YEAR_STEPS: Final = 10
"""Of a rule and year; each occurrence is one more."""
_FIRST_YEAR: Final = 1900
"""A birthday lies before 1970, and a series that begins with it does."""
_LONGEST: Final = timedelta(days=366)
_YEAR: Final = timedelta(days=365)
_CACHED_YEARS: Final = 48
"""More than a search passes, so that the next one finds its years."""
_EPOCH: Final = EPOCH.replace(tzinfo=None)
_SECOND: Final = timedelta(seconds=1)
DATE_FORM: Final = "a local day such as 2026-12-24"
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?")
_TIME_FORM: Final = "a local time or instant such as 2026-12-24T18:00 or 2026-12-24T17:00:00Z"


@dataclass(frozen=True, slots=True)
class Event:
    """A span of local time of a zone, once or at each occurrence of a rule.

    `kind` is how its times are written: `date`, `local` or `instant` (then the zone is UTC).
    """

    kind: str
    start: datetime
    end: datetime
    zone: str
    own_zone: bool
    summary: str = ""
    rule: Recurrence | None = None
    without: tuple[datetime, ...] = ()

    def document(self) -> dict[str, Any]:
        """The canonical document."""
        found: dict[str, Any] = {
            "summary": self.summary,
            "start": written(self.start, self.kind),
            "end": written(self.end, self.kind),
        }
        if self.own_zone:
            found["time_zone"] = self.zone
        if self.rule is not None:
            found["rrule"] = self.rule.text
        if self.without:
            found["except"] = [written(at, self.kind) for at in self.without]
        return found

    @property
    def length(self) -> timedelta:
        """How long it lasts by the clock."""
        return self.end - self.start

    def span(self) -> tuple[int, int]:
        """Its first occurrence."""
        return seconds(self.start), seconds(self.end)

    def spans(self, year: int) -> list[tuple[int, int]]:
        """The spans of the occurrences of its rule that begin in a year."""
        if self.rule is None:
            return []
        length = self.length // _SECOND
        left_out = frozenset(self.without)
        begins = [seconds(at) for at in self.rule.starts(year) if at not in left_out]
        return [(begin, begin + length) for begin in begins]


class Recurring:
    """The set of the local seconds of events that recur, worked out a year at a time.

    Attributes:
        steps: what that has cost up to now.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.steps = 0
        # What begins on the last day of a year lasts into the next, or the one after that.
        self._back = 2 if any(e.length > _YEAR for e in events) else 1
        self._begun = lru_cache(maxsize=_CACHED_YEARS)(self._begin)
        self._year = lru_cache(maxsize=_CACHED_YEARS)(self._compile)

    def stretch(self, at: int) -> Stretch:
        """See `tickrail.core.local_sets.LocalSet`."""
        year = year_of(at)
        start, length = year_bounds(year)
        found = self._year(year).stretch(at)
        return Stretch(found.inside, max(found.start, start), min(found.end, start + length))

    def _begin(self, year: int) -> list[tuple[int, int]]:
        found = [span for e in self._events for span in e.spans(year)]
        self.steps += rule_steps(self._events, found)
        return found

    def _compile(self, year: int) -> Spans:
        return Spans(s for y in range(year - self._back, year + 1) for s in self._begun(y))


def rule_steps(rules: Sized, occurrences: Sized) -> int:
    """What it costs to work out rules for a year: ten steps a rule, one an occurrence."""
    return _YEAR_STEPS * len(rules) + len(occurrences)


@dataclass
class EventCosts:
    """Counts what rules cost from now to three years ahead.

    One that begins later is counted from its first year on: it will cost then what others cost now.
    """

    now: datetime
    steps: int = 0
    refused: bool = field(default=False)

    def add(self, event: Event) -> Problem | None:
        """Take an event in; a problem when the sum is too high."""
        if event.rule is None or self.refused:
            return None
        if event.rule.count is not None:
            self.steps += event.rule.count
        first = max(self.now.year, event.start.year)
        for year in range(first, min(first + YEARS_AHEAD, 9999) + 1):
            self.steps += rule_steps((event,), event.spans(year))
            if self.steps > MAX_STEPS:
                break
        if self.steps <= MAX_STEPS:
            return None
        self.refused = True
        return Problem(
            "/rrule",
            f"of {event.summary[:60] or 'this event'!r} makes the calendar's rules cost more than"
            f" {MAX_STEPS} steps up to {YEARS_AHEAD} years ahead",
            "fewer events with rules, or rules with fewer occurrences",
        )


def parse_event(raw: object, pointer: str, usual_zone: str, costs: EventCosts | None) -> Event:
    """The event of a document.

    Args:
        raw: the document.
        pointer: its place.
        usual_zone: the calendar's zone, for an event that names none.
        costs: counts what rules cost; None: they were counted when the calendar was saved.

    Raises:
        InvalidInputError: with every problem.
    """
    r = Reader(raw, pointer)
    summary = r.text("summary", "", maximum=500) or ""
    start_text, end_text = r.text("start", maximum=40), r.text("end", maximum=40)
    named = r.text("time_zone", maximum=100)
    rule_text = r.text("rrule", maximum=1000, expected="such as FREQ=YEARLY")
    lasts = r.text("duration", maximum=40)
    without = r.raw("except")
    if start_text is None and not any(p.pointer.endswith("/start") for p in r.problems):
        r.problem("start", "is missing", f"{DATE_FORM}, or {_TIME_FORM}")
    where = find_zone(r, named) if named is not None else None
    r.check_unknown()
    if r.problems:
        raise InvalidInputError("The event is not valid.", r.problems)
    start, kind = read_time(r, "/start", start_text or "")
    if kind == "instant" and named is not None:
        r.problem("time_zone", "stands beside an instant", "a zone for a local day or time only")
    end = _end(r, start, kind, end_text, lasts)
    zone_name = "UTC" if kind == "instant" else named if where is not None else usual_zone
    if r.problems:
        raise InvalidInputError("The event is not valid.", r.problems)
    rule = _rule(r, rule_text, start, zone_name or usual_zone)
    if rule is not None and end - start > _LONGEST:
        r.problem("end", "is more than 366 days after the start of an event with a rule", "earlier")
    left_out = _without(r, without, kind, rule is not None)
    if r.problems:
        raise InvalidInputError("The event is not valid.", r.problems)
    event = Event(
        kind,
        start,
        end,
        zone_name or usual_zone,
        own_zone=named is not None,
        summary=summary,
        rule=rule,
        without=left_out,
    )
    problem = None if costs is None else costs.add(event)
    if problem is not None:
        raise InvalidInputError(
            "The event is not valid.",
            [Problem(pointer + problem.pointer, problem.message, problem.expected)],
        )
    return event


def find_zone(reader: Reader, name: str) -> Zone | None:
    """The zone of a field `time_zone`; a problem is noted where there is none."""
    try:
        return zone(name)
    except UnknownZoneError as e:
        hint = f"did you mean {' or '.join(e.nearest)}?" if e.nearest else "such as Europe/Berlin"
        reader.problem("time_zone", f"{name[:60]!r} is not a time zone", hint)
        return None


def read_time(reader: Reader, place: str, text: str) -> tuple[datetime, str]:
    """A local day, local time or instant: on its local axis, and which of the three it is.

    A problem is noted at the place (`/start`) where it is none, and another time comes back.
    """
    expected = f"{DATE_FORM}, or {_TIME_FORM}"
    kind, found = "date", None
    try:
        if (match := _TIME.fullmatch(text)) is not None:
            at = datetime.fromisoformat(text)
            kind = "date" if match[1] is None else "local" if match[3] is None else "instant"
            found = at if at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        found = None
    if found is None or found.year < _FIRST_YEAR:
        known = expected if found is None else f"a time from {_FIRST_YEAR} to 9999"
        reader.problems.append(Problem(reader.pointer + place, f"is {text[:40]!r}", known))
        return _EPOCH, kind
    return found, kind


def written(at: datetime, kind: str) -> str:
    """A time as it stands in a document."""
    if kind == "date":
        return f"{at:%Y-%m-%d}"
    return at.isoformat() + ("Z" if kind == "instant" else "")


def seconds(at: datetime) -> int:
    """Local seconds since 1970."""
    return (at - _EPOCH) // _SECOND


def _end(
    r: Reader, start: datetime, kind: str, end_text: str | None, lasts: str | None
) -> datetime:
    try:
        if end_text is not None and lasts is not None:
            r.problem("duration", "stands beside end", "one of them")
        elif end_text is not None:
            end, end_kind = read_time(r, "/end", end_text)
            if end_kind != kind:
                r.problem("end", "is written in another way than start", _same(kind))
            elif end <= start:
                r.problem("end", "is not after start", "the first moment that is free again")
            return end
        elif lasts is not None:
            length = parse_duration(lasts)
            if length <= timedelta(0) or length % _SECOND or (kind == "date" and length.seconds):
                unit = "whole days" if kind == "date" else "whole seconds"
                r.problem("duration", f"is {lasts!r}", f"{unit}, at least one")
            return start + length
        elif kind == "date":
            return start + timedelta(days=1)
        else:
            r.problem("end", "is missing", "an end or a duration")
    except OverflowError:
        r.problem("end", "is beyond the year 9999", "an earlier time")
    except ValueError as e:
        r.problem("duration", str(e), "a duration such as 30m, 8h, 2d")
    return start


def _same(kind: str) -> str:
    forms = {"date": DATE_FORM, "local": "a local time", "instant": "an instant with offset"}
    return forms[kind] + ", as start is"


def _rule(r: Reader, text: str | None, start: datetime, zone_name: str) -> Recurrence | None:
    if text is None:
        return None

    def local(instant: datetime) -> datetime:
        at = (instant - EPOCH) // _SECOND
        return _EPOCH + timedelta(seconds=at + zone(zone_name).offset(at))

    try:
        rule = parse_rule(text, start, local)
        rule.check()
    except RuleError as e:
        r.problem("rrule", e.message, e.expected)
        return None
    return rule


def _without(r: Reader, raw: object, kind: str, recurs: bool) -> tuple[datetime, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(one, str) for one in raw):
        r.problem("except", f"is {type_name(raw)}", "an array of starts to leave out")
        return ()
    if raw and not recurs:
        r.problem("except", "has nothing to leave out of", "an rrule beside it")
    found = set()
    for i, text in enumerate(raw):
        at, its_kind = read_time(r, f"/except/{i}", text)
        if its_kind != kind:
            where = f"{r.pointer}/except/{i}"
            r.problems.append(Problem(where, "is written in another way than start", _same(kind)))
        found.add(at)
    return tuple(sorted(found))
