"""iCalendar files (RFC 5545) as events of a calendar's document.

What counts: every VEVENT that is not cancelled (`STATUS:CANCELLED`), tentative ones too, and
whether its time is shown as busy or as free (`TRANSP` is not looked at: files of public holidays
mark each day as free). VTODO, VJOURNAL, VFREEBUSY and alarms do not. An event without length covers
nothing and is left out; a file of which nothing is left is refused, and so is a line that is no
property, since what was meant by it would be lost. A `VTIMEZONE` is not read: its name must be one
of the time zone database, or one that Windows uses.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import icalendar
from icalendar.error import GloballyUniqueTZIDGuessed
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.zones import DAY, EPOCH, Zone, zone, zone_names

POINTER: Final = "/icalendar"
MAX_EVENTS: Final = 2000
_READ: Final = (
    *("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "STATUS"),
    "SUMMARY",
)
_SHOWN_LINE: Final = 200
_LONG_LINE: Final = 4000
_PROPERTY: Final = re.compile(r"[\w.-]+(:|;.*:)")
_DAY: Final = timedelta(days=1)
_EPOCH: Final = EPOCH.replace(tzinfo=None)


# What a TZID means is decided below, not by the library's guess.
warnings.filterwarnings("ignore", category=GloballyUniqueTZIDGuessed)


class _Unusable(Exception):  # noqa: N818 - it becomes an error with the event's name
    """Why an event cannot be taken."""

    def __init__(self, message: str, expected: str = "") -> None:
        self.message = message
        self.expected = expected
        super().__init__(message)


@dataclass(frozen=True)
class _Time:
    """A day, a local time (`zone` None: floating) or an instant (`zone` UTC)."""

    at: datetime
    whole_day: bool
    zone: str | None

    def text(self) -> str:
        """As the document writes it."""
        if self.whole_day:
            return f"{self.at:%Y-%m-%d}"
        return self.at.isoformat() + ("Z" if self.zone == "UTC" else "")

    def like(self, other: _Time) -> _Time:
        """The same moment on another time's clock."""
        if self.whole_day and not other.whole_day:  # a day of a timed event means its occurrence
            return _Time(datetime.combine(self.at.date(), other.at.time()), False, other.zone)
        if other.whole_day:
            return _Time(datetime.combine(self.at.date(), datetime.min.time()), True, None)
        if self.zone == other.zone:
            return self
        if self.zone is None or other.zone is None:
            raise _Unusable("mixes floating times and times of a zone", "one of the two")
        instant = _instant(self.at, zone(self.zone))
        moved = timedelta(seconds=instant + zone(other.zone).offset(instant))
        return _Time(_EPOCH + moved, False, other.zone)


def read_icalendar(text: str) -> dict[str, Any]:
    """The members `events`, and `description` and `time_zone` where the file says them.

    Raises:
        InvalidInputError: it cannot be read, or says what is not offered; names the event.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    _check_lines(text)
    try:
        found = icalendar.Calendar.from_ical(_without_zones(text), multiple=True)
    except (ValueError, IndexError, KeyError, TypeError) as e:
        raise _refused(f"is not iCalendar: {_short(e)}", "BEGIN:VCALENDAR ... END:VCALENDAR") from e
    if not found or any(one.name != "VCALENDAR" for one in found):
        raise _refused("holds no VCALENDAR", "BEGIN:VCALENDAR ... END:VCALENDAR")
    events = [event for one in found for event in one.walk("VEVENT")]
    if len(events) > MAX_EVENTS:
        raise _refused(f"has {len(events)} events", f"at most {MAX_EVENTS}")
    document: dict[str, Any] = {"events": list(_documents(events))}
    if not document["events"]:
        why = "has no VEVENT" if not events else "each VEVENT is cancelled or without length"
        raise _refused(f"holds no event ({why})", "a VEVENT that lasts and is not cancelled")
    if title := _text(found[0], "X-WR-CALNAME"):
        document["description"] = title
    named = _text(found[0], "X-WR-TIMEZONE")
    if named and (known := _known_zone(named)) is not None:
        document["time_zone"] = known
    return document


def _check_lines(text: str) -> None:
    """Refuse a line that is no property, and a file that was cut off; the library passes over them.

    Raises:
        InvalidInputError: names the line, or what is missing.
    """
    opened: list[str] = []
    logical, first = "", 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line[:1] in (" ", "\t"):
            if len(logical) <= _LONG_LINE:  # enough to tell what it is
                logical += line[1:]
            continue
        if opened and logical.strip() and not _PROPERTY.match(logical):
            raise _refused(
                f"line {first} is {logical[:_SHOWN_LINE]!r}", "a property such as RRULE:FREQ=DAILY"
            )
        logical, first = line, number
        word, _, name = line.strip().upper().partition(":")
        if word == "BEGIN":
            opened.append(name)
        elif word == "END" and name in opened:
            del opened[len(opened) - 1 - opened[::-1].index(name) :]
    if "VCALENDAR" in opened:
        raise _refused("is cut off: END:VCALENDAR is missing", "BEGIN:VCALENDAR ... END:VCALENDAR")


def _without_zones(text: str) -> str:
    """The file without its VTIMEZONEs: the library would keep each one for all files to come."""
    kept, inside = [], False
    for line in text.split("\n"):
        word = line.strip().upper()
        inside = inside or word == "BEGIN:VTIMEZONE"
        if not inside:
            kept.append(line)
        inside = inside and word != "END:VTIMEZONE"
    return "\n".join(kept)


def _documents(events: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The events as documents, each occurrence that was changed by itself."""
    changed: dict[str, list[tuple[Any, _Time]]] = {}
    for event in events:
        if event.get("RECURRENCE-ID") is not None:
            with _Named(event):
                _check(event)
                at = _time(event["RECURRENCE-ID"])
            changed.setdefault(_text(event, "UID"), []).append((event, at))
    for event in events:
        with _Named(event):
            if _text(event, "STATUS").upper() == "CANCELLED":
                continue
            if event.get("RECURRENCE-ID") is not None:
                yield from _once(event)
                continue
            _check(event)
            replaced = [at for _, at in changed.get(_text(event, "UID"), ())]
            yield from _series(event, replaced)


def _once(event: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - a component
    """An event, or one changed occurrence of a series, that does not recur."""
    start = _time(event["DTSTART"])
    end = _end(event, start)
    if end is not None:
        yield _document(event, start, end)


def _series(event: Any, replaced: Sequence[_Time]) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - as above
    """An event with its rule, its further dates, and what is left out."""
    start = _time(event["DTSTART"])
    end = _end(event, start)
    if end is None:
        return
    length = end.at - start.at
    left_out = {t.like(start).at for t in [*_times(event, "EXDATE"), *replaced]}
    rule = event.get("RRULE")
    if isinstance(rule, list):
        raise _Unusable("has several RRULEs", "one; a second event for the other")
    if rule is not None:
        document = _document(event, start, end) | {"rrule": rule.to_ical().decode()}
        if left_out:
            document["except"] = [
                _Time(at, start.whole_day, start.zone).text() for at in sorted(left_out)
            ]
        yield document
    elif start.at not in left_out:
        yield _document(event, start, end)
    for begin, finish in _periods(event, length):
        if begin.like(start).at not in left_out and begin.at != start.at:
            yield _document(event, begin, finish)


def _document(event: Any, start: _Time, end: _Time) -> dict[str, Any]:  # noqa: ANN401 - as above
    found = {"summary": _text(event, "SUMMARY")[:500], "start": start.text(), "end": end.text()}
    if start.zone not in (None, "UTC"):
        found["time_zone"] = str(start.zone)
    return found


def _end(event: Any, start: _Time) -> _Time | None:  # noqa: ANN401 - as above
    """The first moment after an event; None: it has no length."""
    given, lasts = event.get("DTEND"), event.get("DURATION")
    if given is not None:
        end = _time(given)
        if end.whole_day != start.whole_day:
            raise _Unusable("has a day as DTSTART or DTEND and a time as the other", "two alike")
        end = end.like(start)
    elif lasts is not None:
        end = _Time(start.at + lasts.dt, start.whole_day, start.zone)
    else:
        end = start
    if end.at == start.at:  # a day lasts a day, a moment nothing
        return _Time(start.at + _DAY, True, None) if start.whole_day else None
    if end.at < start.at:
        raise _Unusable("ends before it starts", "a DTEND after DTSTART")
    return end


def _times(event: Any, name: str) -> Iterator[_Time]:  # noqa: ANN401 - as above
    for group in _groups(event, name):
        for one in group.dts:
            if isinstance(one.dt, tuple):
                raise _Unusable(f"has a period as {name}", "days or times")
            yield _plain(one.dt, group.params.get("TZID"))


def _periods(event: Any, length: timedelta) -> Iterator[tuple[_Time, _Time]]:  # noqa: ANN401 - as above
    """The further dates of an event, each with its end."""
    for group in _groups(event, "RDATE"):
        for one in group.dts:
            value = one.dt
            if isinstance(value, tuple):
                begin, end = value
                finish = begin + end if isinstance(end, timedelta) else end
                tzid = group.params.get("TZID")
                yield _plain(begin, tzid), _plain(finish, tzid)
            else:
                start = _plain(value, group.params.get("TZID"))
                yield start, _Time(start.at + length, start.whole_day, start.zone)


def _groups(event: Any, name: str) -> list[Any]:  # noqa: ANN401 - as above
    found = event.get(name)
    return [] if found is None else found if isinstance(found, list) else [found]


def _time(prop: Any) -> _Time:  # noqa: ANN401 - a property
    if isinstance(prop, list):
        raise _Unusable("has a property twice that may stand once", "one of each")
    if prop.params.get("RANGE") is not None:
        raise _Unusable("changes this and all later occurrences (RANGE)", "a series of its own")
    return _plain(prop.dt, prop.params.get("TZID"))


def _plain(value: date | datetime, tzid: str | None) -> _Time:
    if not isinstance(value, datetime):
        return _Time(datetime.combine(value, datetime.min.time()), True, None)
    at = value.replace(tzinfo=None, microsecond=0)
    if tzid is not None:
        known = _known_zone(tzid)
        if known is None:
            raise _Unusable(f"has the unknown TZID {tzid[:60]!r}", "such as Europe/Berlin")
        return _Time(at, False, known)
    return _Time(at, False, None if value.tzinfo is None else "UTC")


def _known_zone(name: str) -> str | None:
    """The zone of a TZID: itself, what stands behind a producer's prefix, or Windows' name."""
    names = zone_names()
    parts = name.strip().strip('"').strip("/").split("/")
    for i in range(len(parts)):
        if "/".join(parts[i:]) in names:
            return "/".join(parts[i:])
    found = WINDOWS_TO_OLSON.get(name)
    return str(found) if found in names else None


def _instant(at: datetime, where: Zone) -> int:
    """The first instant at which a clock shows a time; one in a gap counts from before it."""
    local = (at - _EPOCH) // timedelta(seconds=1)
    offsets = where.offset(local - DAY), where.offset(local + DAY)
    found = [local - o for o in offsets if where.offset(local - o) == o]
    return min(found, default=local - offsets[0])


def _check(event: Any) -> None:  # noqa: ANN401 - a component
    """Refuse what could not be read, and what is not offered."""
    for name, message in event.errors:
        if name in _READ:
            raise _Unusable(f"has an unreadable {name}: {str(message)[:200]}", "as in RFC 5545")
    if event.get("DTSTART") is None:
        raise _Unusable("has no DTSTART", "a day or time at which it begins")
    if event.get("EXRULE") is not None:
        raise _Unusable("has an EXRULE, which iCalendar no longer has", "EXDATE")


class _Named:
    """Adds an event's name to what is wrong with it."""

    def __init__(self, event: Any) -> None:  # noqa: ANN401 - a component
        self._event = event

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        """Raise the named error."""
        if isinstance(error, _Unusable):
            name = _text(self._event, "SUMMARY") or _text(self._event, "UID") or "without a name"
            raise _refused(f"the event {name[:80]!r} {error.message}", error.expected) from error
        if isinstance(error, OverflowError):
            name = _text(self._event, "SUMMARY")
            raise _refused(f"the event {name[:80]!r} leads out of the calendar", "1970 to 9999")


def _text(component: Mapping[str, Any], name: str) -> str:
    found = component.get(name)
    if isinstance(found, list):
        found = found[0]
    return "" if found is None else str(found).strip()


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _refused(message: str, expected: str) -> InvalidInputError:
    return InvalidInputError("The calendar is not valid.", [Problem(POINTER, message, expected)])
