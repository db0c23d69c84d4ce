"""Schedules as JSON documents: read with every problem named, and written with defaults filled."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tickrail.core.calendar_pattern import ON_DATE, ON_WEEKDAY
from tickrail.core.cron import NO_KEY, CronError, CronExpression
from tickrail.core.cron_fields import WEEKDAY
from tickrail.core.documents import MAX_UNKNOWN, Reader, escape, nearest, shown, type_name
from tickrail.core.durations import format_duration, parse_duration
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.recurrence import next_after
from tickrail.core.schedule_values import (
    AnyOf,
    At,
    CalendarInterval,
    Cron,
    Every,
    Fold,
    Gap,
    MeasuredFrom,
    Schedule,
    Unit,
)
from tickrail.core.walk import LAST_INSTANT, Walker
from tickrail.core.zones import DAY, EPOCH, UnknownZoneError, zone

FORMS: Final = ("cron", "every", "calendar", "at", "any_of")
MAX_PARTS: Final = 50
MAX_PERIOD: Final = timedelta(days=36_525)
_SECOND: Final = timedelta(seconds=1)
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAYS: Final = {"month": 31, "year": 366}
_WEEKDAYS: Final = tuple(name.lower() for name in WEEKDAY.names)


def parse_schedule(
    doc: object,
    *,
    job: UUID | None,
    now: datetime,
    pointer: str = "/schedule",
    stored: bool = False,
) -> Schedule | None:
    """The schedule that a document describes; null is None, a job started by hand only.

    Args:
        doc: the JSON value.
        job: the job's id, of which `H` is a hash; None shows an example.
        now: the present instant. It is the default anchor of an interval, rounded down to a
            second; its local day is that of a calendar interval that counts periods.
        pointer: the JSON pointer of the document, for the problems.
        stored: the document was accepted before; one with no further run is then no mistake.

    Raises:
        InvalidInputError: with every problem found; also what can never fire (again).
    """
    if doc is None:
        return None
    found = _Form(doc, pointer, job, now).parse()
    if not stored and next_after(found, now) is None:
        place, start = pointer, now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if isinstance(doc, dict):
            place += "".join(f"/{form}" for form in FORMS if form in doc)
        raise _invalid([Problem(place, f"has no run after {start}", "a time that is to come")])
    return found


def _invalid(problems: list[Problem]) -> InvalidInputError:
    return InvalidInputError("The schedule is not valid.", problems)


class _Form:
    """One document under way."""

    def __init__(self, doc: object, pointer: str, job: UUID | None, now: datetime) -> None:
        self.doc = doc
        self.read = Reader(doc, pointer)
        self.job = job
        self.now = now

    def parse(self) -> Schedule:
        """The value.

        Raises:
            InvalidInputError: with every problem found.
        """
        if not isinstance(self.doc, dict):
            pointer = self.read.pointer
            raise _invalid([Problem(pointer, f"is {type_name(self.doc)}", _AN_OBJECT)])
        given = [form for form in FORMS if self.doc.get(form) is not None]
        if len(given) != 1:
            raise self._which(given)
        found = {
            "cron": self._cron,
            "every": self._every,
            "calendar": self._calendar,
            "at": self._at,
            "any_of": self._any_of,
        }[given[0]]()
        self.read.finish("schedule")
        if found is None:
            raise _invalid([Problem(self.read.pointer, "cannot be read", _AN_OBJECT)])
        return found

    def _which(self, given: list[str]) -> InvalidInputError:
        """What to say to a document with no form, or with several."""
        pointer = self.read.pointer
        if given:
            return _invalid([Problem(pointer, f"has {' and '.join(given)} together", _AN_OBJECT)])
        keys = list(self.doc) if isinstance(self.doc, dict) else []
        unknown = [key for key in keys if key not in _KNOWN][:MAX_UNKNOWN]
        problems = [
            Problem(f"{pointer}/{escape(key)}"[:200], "is not a known field", nearest(key, FORMS))
            for key in unknown
        ]
        return _invalid(problems or [Problem(pointer, "says no time", _AN_OBJECT)])

    def _place(self) -> tuple[str, Gap, Fold]:
        """Zone, gap and fold."""
        given = self.read.text("time_zone", maximum=64)
        name = "UTC" if given is None else given
        try:
            zone(name)
        except UnknownZoneError as e:
            near = f"did you mean {' or '.join(e.nearest)}?" if e.nearest else ""
            self.read.problem("time_zone", f"{name!r} is not a time zone", near or _A_ZONE)
            name = "UTC"
        return name, self.read.choice("gap", Gap.AFTER), self.read.choice("fold", Fold.FIRST)

    def _cron(self) -> Cron | None:
        name, gap, fold = self._place()
        text = self.read.text("cron", maximum=1000, expected="a text such as 0 2 * * *")
        if text is None:
            return None
        try:
            expression = CronExpression.parse(text)  # without a key: jobs share what is cached
            if expression.is_hashed and self.job is not None:
                expression = CronExpression.parse(text, hash_key=self.job)
        except CronError as e:
            self.read.problem("cron", e.message, e.expected)
            return None
        key = self.job if self.job is not None and expression.is_hashed else NO_KEY
        return Cron(expression.text, name, gap, fold, key)

    def _every(self) -> Every | None:
        self.read.without_meaning(_PLACE, "every", "leave it out: an interval follows real time")
        period = self._period(self.read.raw("every"))
        anchor = self.read.instant("anchor") or self.now.astimezone(UTC)
        measured_from = self.read.choice("measured_from", MeasuredFrom.SCHEDULE)
        if period is None:
            return None
        return Every(period, anchor.replace(microsecond=0), measured_from)

    def _period(self, text: object) -> timedelta | None:
        period = None
        try:
            period = parse_duration(text) if isinstance(text, str) else None
        except ValueError:
            period = None
        if period is None:
            told = repr(text[:60]) if isinstance(text, str) else type_name(text)
            expected = "a duration such as 30s, 15m, 1h30m, 7d, from 1s to 100 years"
            self.read.problem("every", f"is {told}", expected)
        elif period % _SECOND or not _SECOND <= period <= MAX_PERIOD:
            expected = "whole seconds, from 1s to 100 years"
            self.read.problem("every", f"is {text}", expected)
            period = None
        return period

    def _at(self) -> At | AnyOf | None:
        text = self.read.text("at", maximum=64)
        try:
            value = datetime.fromisoformat(text or "")
        except ValueError:
            if text is not None:
                self.read.problem("at", f"is {text!r}", _AN_INSTANT)
            self._place()
            return None
        if value.tzinfo is None:
            return self._at_local(value)
        expected = "leave it out, or give a local time"
        self.read.without_meaning(_PLACE, "an instant with an offset", expected)
        try:
            instant = value.astimezone(UTC)
        except OverflowError:
            instant = None
        if instant is None or not EPOCH <= instant < EPOCH + LAST_INSTANT * _SECOND:
            self.read.problem("at", f"is {text!r}", "an instant from 1970 to 9999")
            return None
        return At(instant)

    def _at_local(self, value: datetime) -> At | AnyOf | None:
        name, gap, fold = self._place()
        local = value.isoformat()
        wall = (value.replace(tzinfo=UTC) - EPOCH) // _SECOND
        placed: list[At] = []
        for one in (Fold.FIRST, Fold.SECOND) if fold is Fold.BOTH else (fold,):
            due = Walker(_Once(wall), zone(name), gap, one).next(wall - 3 * DAY)
            if due is None:
                self.read.problem("at", f"{local} does not exist in {name}", "another time or gap")
                return None
            if due < 0:
                self.read.problem("at", f"is {local!r}", "a time from 1970 to 9999")
                return None
            instant = EPOCH + timedelta(seconds=due, microseconds=value.microsecond)
            if instant not in [p.instant for p in placed]:
                placed.append(At(instant, local, name, gap, one))
        if len(placed) == 1:
            return replace(placed[0], fold=fold)
        return AnyOf(tuple(placed))

    def _calendar(self) -> CalendarInterval | None:
        name, gap, fold = self._place()
        inner = self.read.child("calendar")
        every = inner.whole("every", 1, low=1, high=1000)
        unit = inner.choice("unit", Unit.DAY)
        if not inner.has("unit"):
            inner.problem("unit", "is missing", "one of day, week, month, year")
        on = self._on(inner, unit)
        clock = self._clock(inner)
        anchor = self._anchor(inner, every, name)
        self.read.absorb(inner)
        if clock is None or self.read.problems:
            return None
        at = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3] or 0)
        return CalendarInterval(every, unit, on, at, name, gap, fold, anchor)

    def _clock(self, inner: Reader) -> re.Match[str] | None:
        """The time of day."""
        expected = "a time such as 02:00 or 02:00:30"
        text = inner.text("at", maximum=1000, expected=expected)
        clock = None if text is None else _CLOCK.fullmatch(text)
        if text is None and not inner.has("at"):
            inner.problem("at", "is missing", expected)
        elif text is not None and clock is None:
            inner.problem("at", f"{shown(text)} is no local time", expected)
        return clock

    def _anchor(self, inner: Reader, every: int, name: str) -> str | None:
        text = inner.text("anchor", maximum=10)
        if text is not None:
            try:
                if _DAY.fullmatch(text):
                    return date.fromisoformat(text).isoformat()
            except ValueError:
                pass
            inner.problem("anchor", f"is {text!r}", "a local day such as 2026-03-01")
        if every == 1:
            return None
        seconds = (self.now - EPOCH) // _SECOND
        local = EPOCH + timedelta(seconds=seconds + zone(name).offset(seconds))
        return local.date().isoformat()

    def _on(self, inner: Reader, unit: Unit) -> int | str | None:
        value: Any = inner.raw("on")
        if unit is Unit.DAY:
            if value is not None:
                inner.problem("on", "has no meaning for days", "leave it out, or unit week")
            return None
        found = _weekday(value) if unit is Unit.WEEK else _day_in(value, unit)
        if found is None:
            told = "is missing" if value is None else f"is {shown(value, 40)}"
            inner.problem("on", told, _ON[unit])
        return found

    def _any_of(self) -> AnyOf | None:
        self.read.without_meaning(_PLACE, "any_of", "leave it out here: each schedule has its own")
        parts = self.read.raw("any_of")
        if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_PARTS:
            told = (
                f"has {len(parts)} schedules" if isinstance(parts, list) else f"is {shown(parts)}"
            )
            self.read.problem(
                "any_of",
                "is empty" if parts == [] else told,
                f"a list of 1 to {MAX_PARTS} schedules",
            )
            return None
        found: list[Cron | Every | CalendarInterval | At] = []
        for i, part in enumerate(parts):
            pointer = f"{self.read.pointer}/any_of/{i}"
            if isinstance(part, dict) and part.get("any_of") is not None:
                self.read.problems.append(Problem(pointer, "is any_of again", "one list"))
                continue
            form = _Form(part, pointer, self.job, self.now)
            one = self.read.parse(form.parse)
            found.extend(one.parts if isinstance(one, AnyOf) else [one] if one is not None else [])
            if isinstance(one, At) and one.instant.microsecond:
                self.read.problem("any_of", f"part {i} has a fraction of a second", "whole seconds")
            if isinstance(one, Every) and one.measured_from is MeasuredFrom.COMPLETION:
                expected = "measured_from schedule"
                self.read.problem("any_of", f"part {i} is measured from completion", expected)
        return AnyOf(tuple(dict.fromkeys(found)))


class _Once:
    """The pattern of one local second."""

    wild: Final = False

    def __init__(self, local: int) -> None:
        self._local = local

    def next_local(self, at: int) -> int | None:
        """The second, if it is not before `at`."""
        return self._local if at <= self._local else None

    def count(self, low: int, high: int) -> int:
        """Whether the second is in the range."""
        return int(low <= self._local < high)


def _weekday(value: object) -> int | None:
    if isinstance(value, str) and value.lower() in _WEEKDAYS:
        return _WEEKDAYS.index(value.lower())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= len(_WEEKDAYS):
        return value % 7
    return None


def _day_in(value: object, unit: Unit) -> int | str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 1 <= value <= _DAYS[unit.value] else None
    if not isinstance(value, str):
        return None
    text = " ".join(value.lower().split())
    if text == "last" or ON_WEEKDAY.fullmatch(text):
        return text
    dated = ON_DATE.fullmatch(text) if unit is Unit.YEAR else None
    leap_year = 2000
    if dated is not None and int(dated[2]) <= monthrange(leap_year, int(dated[1]))[1]:
        return text
    return None


_AN_OBJECT: Final = (
    'one of {"cron": "0 2 * * *"}, {"every": "15m"}, {"calendar": {...}}, '
    '{"at": "2026-03-01T09:00:00Z"}, {"any_of": [...]}, or null'
)
_PLACE: Final = ("time_zone", "gap", "fold")
_KNOWN: Final = frozenset({*FORMS, *_PLACE, "anchor", "measured_from"})
_A_ZONE: Final = "a name of the time zone database such as Europe/Berlin"
_AN_INSTANT: Final = "an instant such as 2026-03-01T09:00:00Z, or a local time without the Z"
_ON: Final = {
    Unit.WEEK: "sun to sat, or cron's number (0 and 7 = Sunday)",
    Unit.MONTH: "1 to 31, last, or a weekday such as 2nd tue or last fri",
    Unit.YEAR: "a date such as 03-15, a day from 1 to 366, last, or a weekday such as 2nd tue",
}


def schedule_document(s: Schedule) -> dict[str, Any]:
    """The canonical document of a schedule, defaults filled; `parse_schedule` reads it back."""
    if isinstance(s, AnyOf):
        return {"any_of": [schedule_document(part) for part in s.parts]}
    if isinstance(s, Every):
        return {
            "every": format_duration(s.period),
            "anchor": _instant(s.anchor),
            "measured_from": s.measured_from.value,
        }
    if isinstance(s, At) and s.local is None:
        return {"at": _instant(s.instant)}
    place = {"time_zone": s.zone, "gap": s.gap.value, "fold": s.fold.value}
    if isinstance(s, At):
        return {"at": s.local, **place}
    if isinstance(s, Cron):
        return {"cron": s.expression, **place}
    inner: dict[str, Any] = {"every": s.every, "unit": s.unit.value}
    if s.unit is Unit.WEEK:
        inner["on"] = _WEEKDAYS[int(s.on or 0)]
    elif s.unit is not Unit.DAY:
        inner["on"] = s.on
    inner["at"] = clock_text(s.at)
    if s.anchor is not None:
        inner["anchor"] = s.anchor
    return {"calendar": inner, **place}


def clock_text(second_of_day: int) -> str:
    """A time of day: `02:00`, with seconds where there are any."""
    minutes, seconds = divmod(second_of_day, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{text}:{seconds:02d}" if seconds else text


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
