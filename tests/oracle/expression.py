"""A small reader of cron expressions for the tests alone: what each means on a local day.

Shares no code with the product or with croniter; it reads legal expressions only and never says
what is wrong with others.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from uuid import UUID

MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()  # noqa: SIM905 - reads best so
WEEKDAYS = "SUN MON TUE WED THU FRI SAT".split()  # noqa: SIM905 - reads best so
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
SATURDAY, SUNDAY = 6, 7

Rule = Callable[[date], bool]


@dataclass(frozen=True)
class Expression:
    """The times of a day that an expression means, and the days on which it means them."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    """Minutes of the day, ascending."""
    on: Rule
    wild: bool
    every_day: bool


def read(text: str, job: UUID) -> Expression:
    """Read a legal expression; five fields, six with seconds first, seven with the year last."""
    words = ALIASES.get(text.strip().lower(), text).upper().split()
    if len(words) == 5:
        words.insert(0, "0")
    if len(words) == 6:
        words.append("*")
    second, minute, hour, day, month, weekday, year = words
    hours = _numbers(hour, 0, 23, (), job, "hour")
    minutes = _numbers(minute, 0, 59, (), job, "minute")
    days = [_day_rule(item, job) for item in day.split(",")]
    week = [_weekday_rule(item, job) for item in weekday.split(",")]
    months = _numbers(month, 1, 12, MONTHS, job, "month")
    years = _numbers(year, 1970, 2199, (), job, "year")
    either = day[0] not in "*?" and weekday[0] not in "*?"

    def on(at: date) -> bool:
        if at.month not in months or at.year not in years:
            return False
        by_day, by_week = any(r(at) for r in days), any(r(at) for r in week)
        return (by_day or by_week) if either else (by_day and by_week)

    return Expression(
        seconds=tuple(sorted(_numbers(second, 0, 59, (), job, "second"))),
        minutes=tuple(sorted(h * 60 + m for h in hours for m in minutes)),
        on=on,
        wild=minute[0] == "*" or hour[0] == "*",
        every_day=all(w in ("*", "?") for w in (day, month, weekday, year)),
    )


def _numbers(
    text: str, low: int, high: int, names: list[str] | tuple[str, ...], job: UUID, field: str
) -> set[int]:
    """The values of a list of numbers, names, ranges and steps; a range may wrap round."""
    found: set[int] = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        every = int(step) if step else 1
        if body in ("*", "?"):
            found |= set(range(low, high + 1, every))
        elif body.startswith("H"):
            found |= _hashed(body, every if step else 0, low, high, job, field)
        else:
            first, dash, last = body.partition("-")
            begin = _number(first, low, names)
            if dash:
                end = _number(last, low, names)
                if field == "weekday" and begin == 7 and end < 7:
                    begin = 0
                at = begin
                values = [at]
                while at != end:
                    at = low if at == high else at + 1
                    values.append(at)
                found |= set(values[::every])
            else:
                found |= set(range(begin, high + 1, every)) if step else {begin}
    return found


def _number(word: str, low: int, names: list[str] | tuple[str, ...]) -> int:
    return names.index(word) + low if word in names else int(word)


def _hashed(body: str, step: int, low: int, high: int, job: UUID, field: str) -> set[int]:
    if "(" in body:
        low, high = (int(x) for x in body[2:-1].split("-"))
    elif field == "day of month":
        high = 28
    number = int.from_bytes(sha256(job.bytes + field.encode()).digest()[:8], "big")
    if not step:
        return {low + number % (high - low + 1)}
    return set(range(low + number % min(step, high - low + 1), high + 1, step))


def _last_day(at: date) -> int:
    return monthrange(at.year, at.month)[1]


def _day_rule(item: str, job: UUID) -> Rule:
    if item == "LW":
        return lambda at: at == _working_day(at, _last_day(at))
    if item.startswith("L"):
        back = int(item[2:] or 0)
        return lambda at: at.day == _last_day(at) - back
    if item.endswith("W"):
        near = int(item[:-1])
        return lambda at: near <= _last_day(at) and at == _working_day(at, near)
    values = _numbers(item, 1, 31, (), job, "day of month")
    return lambda at: at.day in values


def _working_day(at: date, day: int) -> date:
    """The Monday to Friday of the month that is nearest to a day, looked for day by day."""
    there = at.replace(day=day)
    candidates = [
        at.replace(day=d)
        for d in range(max(1, day - 2), min(_last_day(at), day + 2) + 1)
        if at.replace(day=d).isoweekday() < SATURDAY
    ]
    return min(candidates, key=lambda d: abs((d - there).days))


def _weekday_rule(item: str, job: UUID) -> Rule:
    if "#" in item:
        name, _, number = item.partition("#")
        weekday, nth = _number(name, 0, WEEKDAYS) % 7, int(number)
        return lambda at: at.isoweekday() % 7 == weekday and (at.day + 6) // 7 == nth
    if item.endswith("L"):
        weekday = _number(item[:-1], 0, WEEKDAYS) % 7
        return lambda at: at.isoweekday() % 7 == weekday and at.day + 7 > _last_day(at)
    if "7" in item.partition("/")[0].split("-")[1:]:  # a range up to Sunday, whose number is then 7
        begin = _number(item.partition("-")[0], 0, WEEKDAYS)
        step = int(item.partition("/")[2] or 1)
        values = {v % 7 for v in range(begin, SUNDAY + 1, step)}
    else:
        values = {v % 7 for v in _numbers(item, 0, 6, WEEKDAYS, job, "weekday")}
    return lambda at: at.isoweekday() % 7 in values
