"""Named calendars: sets of instants that jobs leave out, or keep to.

A calendar says what a wall clock may show: days, days of each year, weekdays, windows of the day,
events. **An instant belongs to it when the clock of the zone then shows a time that does.** So a
local day is as long as the clock shows its date (23 to 25 hours, or not at all), a window is
shorter by what a gap leaves out, and holds at both passes of an hour that comes twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import Any, Final, TypeVar

from tickrail.core.calendar_events import (
    DATE_FORM,
    MAX_EVENTS,
    Event,
    EventCosts,
    Recurring,
    find_zone,
    parse_event,
)
from tickrail.core.documents import Reader, nearest, type_name
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.local_sets import LocalSet, MonthDay, Spans, Stretch, Weekly, Yearly
from tickrail.core.zones import DAY, EPOCH_ORDINAL, FAR, Zone, zone

__all__ = [
    "MAX_BYTES", "MAX_ENTRIES", "Calendar", "Stretch", "calendar_document", "parse_calendar",
]  # fmt: skip

T = TypeVar("T")

MAX_ENTRIES: Final = 5000
"""Entries of all kinds, occurrences left out among them."""
MAX_BYTES: Final = 256 * 1024
"""Of the canonical document as JSON."""
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MONTH_DAY = re.compile(r"(\d\d)-(\d\d)")
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?")
_FIRST_YEAR = 1970
_LEAP_YEAR = 2000
_MOST_PROBLEMS = 50


@dataclass(frozen=True)
class Calendar:
    """A named set of instants. `document` is the canonical one, its name aside.

    Attributes:
        name: unique in its tenant.
        version: grows with each change.
        document: see `parse_calendar`.
    """

    name: str
    version: int
    document: Mapping[str, Any] = field(hash=False)
    _layers: Sequence[tuple[Zone, Sequence[LocalSet]]] = field(
        default=(), compare=False, repr=False
    )
    _recurring: Sequence[Recurring] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Know those whose cost grows."""
        found = tuple(s for _, sets in self._layers for s in sets if isinstance(s, Recurring))
        object.__setattr__(self, "_recurring", found)

    def stretch(self, at: int) -> Stretch:
        """Whether an instant (Unix seconds) belongs to the calendar, and where that is so.

        The answer holds for each `start <= second < end`; that need not be the longest stretch.
        `end` is `zones.FAR` at most.
        """
        start, end = -FAR, FAR
        for where, sets in self._layers:
            piece = where.piece(at)
            start, end = max(start, piece.start), min(end, piece.end)
            for one in sets:
                found = one.stretch(at + piece.offset)
                low, high = found.start - piece.offset, found.end - piece.offset
                if found.inside:
                    return Stretch(True, max(low, piece.start), min(high, piece.end, FAR))
                start, end = max(start, low), min(end, high)
        return Stretch(False, start, end)

    @property
    def steps(self) -> int:
        """What working out its rules has cost up to now (`calendar_events.rule_steps`)."""
        return sum(one.steps for one in self._recurring)

    def contains(self, at: int) -> bool:
        """Whether an instant (Unix seconds) belongs to the calendar."""
        return self.stretch(at).inside


def calendar_document(calendar: Calendar) -> dict[str, Any]:
    """The canonical document, every default filled in; `parse_calendar` reads it back."""
    return {"name": calendar.name, **calendar.document}


def parse_calendar(
    doc: object,
    *,
    name: str,
    version: int = 1,
    pointer: str = "",
    now: datetime | None = None,
) -> Calendar:
    """The calendar that a document describes: the union of its entries.

    `dates`: local days, each alone or `{"from", "to"}`, both included. `yearly`: the same of each
    year, `MM-DD`. `weekdays`. `windows`: `{"from": "22:00", "to": "06:00", "weekdays"}`, round
    midnight where `to` is not after `from`; the weekdays are those on which it begins. `events`:
    see `calendar_events.parse_event`. All in `time_zone`, by default UTC.

    Args:
        doc: the document; a member `name` must be the name.
        name: the calendar's name.
        version: of the calendar.
        pointer: the document's place.
        now: for a document that is to be saved: what its rules cost from now on is bounded.

    Raises:
        InvalidInputError: with every problem, each with its JSON pointer.
    """
    r = Reader(doc, pointer)
    given = r.text("name", maximum=200)
    if given is not None and given != name:
        r.problem("name", f"is {given[:60]!r}", f"{name!r}, as in the path, or leave it out")
    description = r.text("description", "", maximum=4096) or ""
    given_zone = r.text("time_zone", maximum=100)
    zone_name = "UTC" if given_zone is None else given_zone
    where = find_zone(r, zone_name) or zone("UTC")
    entries = [_list(r, n) for n in ("dates", "yearly", "weekdays", "windows", "events")]
    total = sum(len(e) for e in entries) + sum(_exceptions(e) for e in entries[-1])
    if total > MAX_ENTRIES or len(entries[-1]) > MAX_EVENTS:
        r.problems.append(
            Problem(
                pointer,
                f"has {total} entries, {len(entries[-1])} of them events",
                f"at most {MAX_ENTRIES}, {MAX_EVENTS} of them events",
            )
        )
        r.finish("calendar")
    raw_dates, raw_yearly, raw_weekdays, raw_windows, raw_events = entries
    costs = None if now is None else EventCosts(now)
    dates = sorted(set(_each(r, "dates", raw_dates, _days)))
    yearly = sorted(set(_each(r, "yearly", raw_yearly, _month_days)))
    weekdays = sorted(set(_each(r, "weekdays", raw_weekdays, _weekday)))
    windows = sorted(set(_each(r, "windows", raw_windows, _window)))
    events = _each(r, "events", raw_events, lambda e, p: parse_event(e, p, zone_name, costs))
    del r.problems[_MOST_PROBLEMS:]
    r.finish("calendar")
    document = {
        "description": description,
        "time_zone": zone_name,
        "dates": [_from_to(low, high, date.isoformat) for low, high in dates],
        "yearly": [_from_to(low, high, lambda d: f"{d[0]:02d}-{d[1]:02d}") for low, high in yearly],
        "weekdays": [WEEKDAYS[day] for day in weekdays],
        "windows": [_window_document(w) for w in windows],
        "events": [e.document() for e in events],
    }
    size = len(json.dumps(document, ensure_ascii=False).encode())
    if size > MAX_BYTES:
        raise InvalidInputError(
            "The calendar is not valid.",
            [Problem(pointer, f"has {size} bytes", f"at most {MAX_BYTES}")],
        )
    own = _own_sets(dates, yearly, weekdays, windows)
    return Calendar(name, version, document, _layers(where, zone_name, own, events))


_Window = tuple[int, int, tuple[int, ...]]
"""From and to as seconds of the day, and the weekdays of its beginning (0 = Monday)."""


def _own_sets(
    dates: Sequence[tuple[date, date]],
    yearly: Sequence[tuple[MonthDay, MonthDay]],
    weekdays: Sequence[int],
    windows: Sequence[_Window],
) -> list[LocalSet]:
    """The sets of what is no event."""
    found: list[LocalSet] = []
    if dates:
        found.append(Spans((_midnight(low), _midnight(high) + DAY) for low, high in dates))
    if yearly:
        found.append(Yearly(yearly))
    week = [(day * DAY, (day + 1) * DAY) for day in weekdays]
    for start, end, days in windows:
        length = end - start if end > start else end - start + DAY
        week += [(d * DAY + start, d * DAY + start + length) for d in days]
    if week:
        found.append(Weekly(week))
    return found


def _layers(
    where: Zone, zone_name: str, own: Sequence[LocalSet], events: Sequence[Event]
) -> list[tuple[Zone, Sequence[LocalSet]]]:
    """The sets by zone: whoever asks finds out once what each clock shows."""
    by_zone: dict[str, list[LocalSet]] = {zone_name: list(own)} if own else {}
    zones = {zone_name: where} | {e.zone: zone(e.zone) for e in events}
    for name in dict.fromkeys(e.zone for e in events):
        here = [e for e in events if e.zone == name]
        sets = by_zone.setdefault(name, [])
        if once := [e.span() for e in here if e.rule is None]:
            sets.append(Spans(once))
        if recurring := [e for e in here if e.rule is not None]:
            sets.append(Recurring(recurring))
    return [(zones[name], tuple(sets)) for name, sets in by_zone.items()]


def _list(r: Reader, name: str) -> list[Any]:
    if not r.has(name):
        return []
    raw = r.raw(name)
    if not isinstance(raw, list):
        r.problem(name, f"is {type_name(raw)}", "an array")
        return []
    return raw


def _exceptions(event: object) -> int:
    left_out = event.get("except") if isinstance(event, dict) else None
    return len(left_out) if isinstance(left_out, list) else 0


def _each(r: Reader, name: str, raw: Sequence[object], read: Callable[[object, str], T]) -> list[T]:
    """Read the entries of a list; stops where there are far too many problems."""
    found: list[T] = []
    for i, entry in enumerate(raw):
        value = r.parse(partial(read, entry, f"{r.pointer}/{name}/{i}"))
        if value is not None:
            found.append(value)
        if len(r.problems) > _MOST_PROBLEMS:
            break
    return found


def _range(
    raw: object, pointer: str, form: str, read: Callable[[str, str], T]
) -> tuple[T, T, Reader]:
    """An entry that stands alone or has `from` and `to`."""
    if isinstance(raw, str):
        value = read(raw, pointer)
        return value, value, Reader({}, pointer)
    if not isinstance(raw, dict):
        raise _wrong(pointer, f"is {type_name(raw)}", f'{form}, or an object of "from" and "to"')
    r = Reader(raw, pointer)
    ends: list[T | None] = []
    for end in ("from", "to"):
        text = r.text(end, maximum=40, expected=form)
        if text is None and not any(p.pointer.endswith(f"/{end}") for p in r.problems):
            r.problem(end, "is missing", form)
        ends.append(None if text is None else r.parse(partial(read, text, f"{pointer}/{end}")))
    r.finish("calendar")
    low, high = ends
    if low is None or high is None:  # pragma: no cover - `finish` has raised
        raise _wrong(pointer, "is not complete", form)
    return low, high, r


def _days(raw: object, pointer: str) -> tuple[date, date]:
    low, high, _ = _range(raw, pointer, DATE_FORM, _date)
    if high < low:
        raise _wrong(f"{pointer}/to", "is before from", "the last day that belongs to it")
    return low, high


def _date(text: str, pointer: str) -> date:
    try:
        found = date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        found = None
    if found is None or found.year < _FIRST_YEAR:
        raise _wrong(pointer, f"is {text[:40]!r}", f"{DATE_FORM}, from 1970 to 9999")
    return found


def _month_days(raw: object, pointer: str) -> tuple[MonthDay, MonthDay]:
    low, high, _ = _range(raw, pointer, "a day of each year such as 12-25", _month_day)
    return low, high


def _month_day(text: str, pointer: str) -> MonthDay:
    match = _MONTH_DAY.fullmatch(text)
    try:
        if match is not None:
            found = date(_LEAP_YEAR, int(match[1]), int(match[2]))
            return found.month, found.day
    except ValueError:
        pass
    raise _wrong(pointer, f"is {text[:40]!r}", "a day of each year, MM-DD, such as 12-25")


def _weekday(raw: object, pointer: str) -> int:
    if isinstance(raw, str) and raw in WEEKDAYS:
        return WEEKDAYS.index(raw)
    shown = repr(raw[:20]) if isinstance(raw, str) else type_name(raw)
    raise _wrong(pointer, f"is {shown}", nearest(str(raw)[:20], WEEKDAYS))


def _window(raw: object, pointer: str) -> _Window:
    r = Reader(raw, pointer)
    ends = []
    for end in ("from", "to"):
        text = r.text(end, maximum=40, expected="a time of day such as 22:00")
        if text is None and isinstance(raw, dict) and raw.get(end) is None:
            r.problem(end, "is missing", "a time of day such as 22:00")
        at = None if text is None else _clock(text, latest=DAY if end == "to" else DAY - 1)
        if text is not None and at is None:
            r.problem(end, f"is {text!r}", "a time of day from 00:00 to 24:00 (24:00 as `to`)")
        ends.append(at or 0)
    if not r.problems and ends[0] == ends[1]:
        r.problem("to", "is the same as from", 'another time; the whole day is "00:00" to "24:00"')
    days = sorted(set(_each(r, "weekdays", _list(r, "weekdays"), _weekday)))
    r.finish("window")
    return ends[0], ends[1], tuple(days) or tuple(range(7))


def _clock(text: str, latest: int) -> int | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    at = hour * 3600 + minute * 60 + second
    return at if max(minute, second) < 60 and at <= latest else None  # noqa: PLR2004 - a clock


def _clock_text(at: int) -> str:
    text = f"{at // 3600:02d}:{at // 60 % 60:02d}"
    return f"{text}:{at % 60:02d}" if at % 60 else text


def _window_document(window: _Window) -> dict[str, Any]:
    start, end, days = window
    found: dict[str, Any] = {"from": _clock_text(start), "to": _clock_text(end)}
    if len(days) < len(WEEKDAYS):
        found["weekdays"] = [WEEKDAYS[d] for d in days]
    return found


def _from_to(low: T, high: T, write: Callable[[T], str]) -> Any:  # noqa: ANN401 - a string or an object
    return write(low) if low == high else {"from": write(low), "to": write(high)}


def _midnight(day: date) -> int:
    return (day.toordinal() - EPOCH_ORDINAL) * DAY


def _wrong(pointer: str, message: str, expected: str) -> InvalidInputError:
    return InvalidInputError("The calendar is not valid.", [Problem(pointer, message, expected)])
