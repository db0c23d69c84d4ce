"""Which instants belong to a calendar, found by reading the wall clock and nothing else.

Written for the tests alone: the zones of the tzdata package and a walk over days, no code of the
project and none of the library that it uses for recurrence rules.
"""

from __future__ import annotations

import calendar as months
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any

from tests.support.cron_oracle import zone_info

DAY = timedelta(days=1)
LAST = date(2030, 12, 31)
WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
NAMES = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def belongs(document: Mapping[str, Any], instant: datetime) -> bool:
    """Whether an instant belongs to the calendar of a document."""
    usual = document.get("time_zone", "UTC")
    clock = instant.astimezone(zone_info(usual)).replace(tzinfo=None)
    return (
        any(_in_days(entry, clock.date()) for entry in document.get("dates", ()))
        or any(_in_year(entry, clock.date()) for entry in document.get("yearly", ()))
        or WEEKDAYS[clock.weekday()] in document.get("weekdays", ())
        or any(_in_window(window, clock) for window in document.get("windows", ()))
        or any(_in_event(event, instant, usual) for event in document.get("events", ()))
    )


def _ends(entry: Any) -> tuple[str, str]:
    return (entry, entry) if isinstance(entry, str) else (entry["from"], entry["to"])


def _in_days(entry: Any, day: date) -> bool:
    low, high = _ends(entry)
    return low <= day.isoformat() <= high


def _in_year(entry: Any, day: date) -> bool:
    low, high = _ends(entry)
    here = f"{day:%m-%d}"
    return low <= here <= high if low <= high else here >= low or here <= high


def _in_window(window: Mapping[str, Any], clock: datetime) -> bool:
    """Walk back over the days on which the window may have begun."""
    start, end = window["from"], window["to"]
    for began in (clock.date(), clock.date() - DAY):
        if WEEKDAYS[began.weekday()] not in window.get("weekdays", WEEKDAYS):
            continue
        low = datetime.combine(began, time.fromisoformat(start))
        last = began if end > start else began + DAY
        high = (
            datetime.combine(last + DAY, time())
            if end == "24:00"
            else datetime.combine(last, time.fromisoformat(end))
        )
        if low <= clock < high:
            return True
    return False


def _in_event(event: Mapping[str, Any], instant: datetime, usual: str) -> bool:
    zone = "UTC" if event["start"].endswith("Z") else event.get("time_zone", usual)
    clock = instant.astimezone(zone_info(zone)).replace(tzinfo=None)
    start, end = (_moment(event[name]) for name in ("start", "end"))
    left_out = {_moment(text) for text in event.get("except", ())}
    length = end - start
    begins = _begins(event.get("rrule"), start)
    first = bisect_right(begins, clock - length)
    return any(b <= clock for b in begins[first:] if b not in left_out)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


@lru_cache(maxsize=1000)
def _begins(rule: str | None, start: datetime) -> list[datetime]:
    """The begins of an event up to 2030: every day since its first one is looked at."""
    if rule is None:
        return [start]
    parts = dict(part.split("=") for part in rule.split(";"))
    last = LAST
    if "UNTIL" in parts:
        last = datetime.strptime(parts["UNTIL"], "%Y%m%d").date()  # noqa: DTZ007 - a local day
    count = int(parts.get("COUNT", 10**9))
    day, found = start.date(), []
    while day <= last and len(found) < count:
        if day == start.date() or matches(parts, start.date(), day):
            found.append(datetime.combine(day, start.time()))
        day += DAY
    return found


def matches(parts: Mapping[str, str], start: date, day: date) -> bool:
    """Whether a rule, BYSETPOS included, names a day."""
    if not _named(parts, start, day):
        return False
    if "BYSETPOS" not in parts:
        return True
    first = day.replace(day=1) if parts["FREQ"] == "MONTHLY" else day.replace(month=1, day=1)
    length = months.monthrange(day.year, day.month)[1] if parts["FREQ"] == "MONTHLY" else 366
    days = [first + i * DAY for i in range(length) if (first + i * DAY).year == day.year]
    named = [d for d in days if _named(parts, start, d)]
    wanted = [int(p) for p in parts["BYSETPOS"].split(",")]
    at = named.index(day)
    return at + 1 in wanted or at - len(named) in wanted


def _named(parts: Mapping[str, str], start: date, day: date) -> bool:
    interval = int(parts.get("INTERVAL", 1))
    frequency = parts["FREQ"]
    first_weekday = NAMES.index(parts.get("WKST", "MO"))
    if frequency == "DAILY":
        apart = (day - start).days
    elif frequency == "WEEKLY":
        weeks = [d - timedelta(days=(d.weekday() - first_weekday) % 7) for d in (day, start)]
        apart = (weeks[0] - weeks[1]).days // 7
    elif frequency == "MONTHLY":
        apart = (day.year - start.year) * 12 + day.month - start.month
    else:
        apart = day.year - start.year
    if apart % interval or not _among(parts.get("BYMONTH"), day.month, 0):
        return False
    length = months.monthrange(day.year, day.month)[1]
    whole = 366 if months.isleap(day.year) else 365
    given = {"BYMONTHDAY", "BYDAY", "BYYEARDAY"} & parts.keys()
    if not given:
        if frequency == "WEEKLY":
            return day.weekday() == start.weekday()
        if frequency == "MONTHLY":
            return day.day == start.day
        if frequency == "YEARLY":
            right_month = "BYMONTH" in parts or day.month == start.month
            return right_month and day.day == start.day
    return (
        _among(parts.get("BYMONTHDAY"), day.day, length + 1)
        and _among(parts.get("BYYEARDAY"), day.timetuple().tm_yday, whole + 1)
        and _weekday(parts, day, length, whole)
    )


def _among(listed: str | None, value: int, beyond: int) -> bool:
    if listed is None:
        return True
    wanted = [int(n) for n in listed.split(",")]
    return value in wanted or (beyond > 0 and value - beyond in wanted)


def _weekday(parts: Mapping[str, str], day: date, length: int, whole: int) -> bool:
    if "BYDAY" not in parts:
        return True
    in_month = parts["FREQ"] == "MONTHLY" or "BYMONTH" in parts
    place, size = (day.day, length) if in_month else (day.timetuple().tm_yday, whole)
    from_start, from_end = (place - 1) // 7 + 1, -((size - place) // 7 + 1)
    for text in parts["BYDAY"].split(","):
        if NAMES[day.weekday()] != text[-2:]:
            continue
        if len(text) == 2 or int(text[:-2]) in (from_start, from_end):
            return True
    return False


def minutes(low: datetime, high: datetime) -> Iterator[datetime]:
    """Every minute of a range."""
    at = low.astimezone(UTC)
    while at < high:
        yield at
        at += timedelta(minutes=1)
