"""What is legal in a schedule but probably not meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from tickrail.core.cron import CronExpression
from tickrail.core.recurrence import walker_of
from tickrail.core.schedule_values import AnyOf, CalendarInterval, Cron, Schedule, Unit
from tickrail.core.walk import Fold, Gap, Walker
from tickrail.core.zones import EPOCH, FAR, local_text, zone

HERD: Final = 1_000
"""So many jobs of a tenant that wait for one instant are a herd."""
_AHEAD: Final = 2 * 366 * 86400
_DAY: Final = timedelta(days=1)
_ALL_SIXTY: Final = 60
_SHORT_MONTHS: Final = (29, 30, 31)
_QUARTZ: Final = 7
_CLASSIC: Final = 5


@dataclass(frozen=True, slots=True)
class LintWarning:
    """A warning: a stable code and a sentence; `pointer` is the JSON pointer of the place."""

    code: str
    message: str
    pointer: str = "/schedule"


def lint(schedule: Schedule | None, now: datetime, pointer: str = "/schedule") -> list[LintWarning]:
    """What is legal in this schedule but probably not meant, seen from `now`.

    A fixed time is looked at in its zone for two years from the beginning of the day (UTC) on.
    """
    if isinstance(schedule, AnyOf):
        return [
            warning
            for i, part in enumerate(schedule.parts)
            for warning in lint(part, now, f"{pointer}/any_of/{i}")
        ]
    if isinstance(schedule, Cron | CalendarInterval):
        where = f"{pointer}/{'cron' if isinstance(schedule, Cron) else 'calendar'}"
        found = _found(schedule, (now - EPOCH) // _DAY)
        return [LintWarning(code, message, where) for code, message in found]
    return []


# Many jobs have the same few schedules, and a zone's changes take long to look at.
@lru_cache(maxsize=4096)
def _found(schedule: Cron | CalendarInterval, day: int) -> Sequence[tuple[str, str]]:
    now = EPOCH + day * _DAY
    if isinstance(schedule, CalendarInterval):
        return (*_calendar(schedule), *_transitions(schedule, now))
    e = CronExpression.parse(schedule.expression, hash_key=schedule.hash_key)
    found = [*lint_expression(e), *_transitions(schedule, now)]
    if e.wild and (schedule.gap is not Gap.AFTER or schedule.fold is not Fold.FIRST):
        found.append(("no_effect", _NO_EFFECT))
    return tuple(found)


def herd(at: datetime, pointer: str = "/schedule") -> LintWarning:
    """The warning about a crowd of jobs that are due at one instant."""
    shown = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return LintWarning(
        "herd",
        f"{HERD:,} or more active jobs are due at {shown} UTC; an H in the place of the minute, or"
        " a jitter, spreads them",
        pointer,
    )


def untold(
    job_pauses_itself: bool, success_is_expected: bool, somebody_is_told: bool
) -> list[LintWarning]:
    """The warnings about a job that pauses itself, or may fall silent, and tells nobody."""
    if somebody_is_told:
        return []
    said = "and tells nobody; notify names channels that are told"
    return [
        LintWarning("untold", f"{message} {said}", pointer)
        for wanted, message, pointer in (
            (job_pauses_itself, "the job may pause itself", "/on_failures/pause_after"),
            (
                success_is_expected,
                "the job expects successes",
                "/on_failures/expect_success_every",
            ),
        )
        if wanted
    ]


def no_run(after: datetime, ends_at: datetime | None, pointer: str = "/schedule") -> LintWarning:
    """The warning about a schedule that has no slot left, seen from an instant."""
    shown, end = (
        None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for at in (after, ends_at)
    )
    until = f" and until {end}" if end else ""
    return LintWarning("no_run", f"has no run after {shown}{until}", pointer)


def lint_expression(e: CronExpression) -> Iterator[tuple[str, str]]:
    """Warnings about an expression alone: (code, message)."""
    second, minute, hour, day, _, weekday, _ = e.fields
    yield from _often(e, second, minute, hour)
    if e.either_day:
        yield (
            "either_day",
            f"fires on day {day} of the month and also on weekday {weekday}, not only on both",
        )
    quartz = "?" in (day, weekday) or e.given == _QUARTZ
    if quartz and any(c.isdigit() for c in weekday.partition("#")[0].partition("/")[0]):
        yield ("weekday_numbers", f"weekday {weekday} {_NUMBERS}")
    if e.given == _CLASSIC and "?" in (day, weekday):
        yield ("quartz_fields", "? is a habit of Quartz; here the first of five fields is minutes")
    yield from _steps(e)
    yield from _short_months(e)
    if e.is_hashed:
        yield (
            "hashed",
            "H is a value picked by the job's id; a job not saved yet shows an example",
        )


def _often(e: CronExpression, second: str, minute: str, hour: str) -> Iterator[tuple[str, str]]:
    """A `*` in a small unit beside a restricted larger one."""
    if e.given != _CLASSIC and second.startswith("*") and e.seconds.bit_count() == _ALL_SIXTY:
        yield ("every_second", "fires every second; five fields begin with the minute")
    elif minute == "*" and (e.hours.bit_count() < 24 or hour == "*/1"):  # noqa: PLR2004 - hours
        yield (
            "every_minute",
            f"fires {_ALL_SIXTY} times in each hour that matches; for once an hour the minute is 0",
        )
    elif minute == "*" and hour == "*" and not (e.days.star and e.weekdays.star):
        yield (
            "every_minute",
            "fires every minute of each day that matches; for once a day minute and hour are 0",
        )
    elif minute == "*" and e.months.bit_count() < 12:  # noqa: PLR2004 - months
        yield ("every_minute", "fires every minute of each month that matches")


def _steps(e: CronExpression) -> Iterator[tuple[str, str]]:
    sizes = {
        "second": (0, 60),
        "minute": (0, 60),
        "hour": (0, 24),
        "day": (1, 31),
        "month": (1, 12),
    }
    for (name, (low, size)), text in zip(sizes.items(), e.fields, strict=False):
        for item in text.upper().split(","):
            base, slash, step = item.partition("/")
            if not slash or base.startswith("H"):
                continue
            if base.isdigit():
                if e.given == _CLASSIC:
                    yield (
                        "open_step",
                        f"{name} {item} is read as {base}-{low + size - 1}/{step}; say it so",
                    )
            elif base == "*":
                if name == "day" and int(step) >= size:
                    yield ("wide_step", f"{name} {item}: only day 1 of the month matches")
                if name != "day" and size % int(step) and int(step) < size:
                    rest = size - (size - 1) // int(step) * int(step)
                    yield ("uneven_step", f"{name} {item} is not even: the last gap is {rest}")
            elif int(step) > _span(base, size):
                yield ("wide_step", f"{name} {item}: only the first value of the range matches")


def _span(base: str, size: int) -> int:
    ends = [int(end) for end in base.split("-") if end.isdigit()]
    if len(ends) < 2:  # noqa: PLR2004 - a named range: its ends do not matter here
        return size
    return (ends[1] - ends[0]) % size


def _short_months(e: CronExpression) -> Iterator[tuple[str, str]]:
    if e.days.star or e.either_day:
        return
    days = [d for d in range(1, 32) if e.days.mask >> d & 1]
    if days and days[0] in _SHORT_MONTHS:
        short = [m for m in range(1, 13) if e.months >> m & 1 and not e.month_mask(2001, m)]
        if short:
            yield (
                "short_months",
                f"months without day {days[0]} are left out; L is the last day of every month",
            )


def _calendar(s: CalendarInterval) -> Iterator[tuple[str, str]]:
    if s.unit is Unit.MONTH and isinstance(s.on, int) and s.on in _SHORT_MONTHS:
        yield ("short_months", f"months without day {s.on} are left out; `last` is in every month")
    if s.unit is Unit.MONTH and isinstance(s.on, str) and s.on.startswith("5th"):
        yield ("short_months", f"months without a {s.on} are left out; `last` is in every month")


def _transitions(s: Cron | CalendarInterval, now: datetime) -> Iterator[tuple[str, str]]:
    """A fixed time that lies in a gap or a fold of its zone within two years; the first of each."""
    walker = walker_of(s)
    if walker.pattern.wild:
        return
    where = zone(s.zone)
    at = (now - EPOCH) // timedelta(seconds=1)
    end = at + _AHEAD
    told: set[str] = set()
    piece = where.piece(at)
    while piece.end < min(end, FAR):
        start = piece.end
        piece = where.piece(start)
        low, high = sorted((start + piece.before, start + piece.offset))
        found = walker.pattern.next_local(low)
        if found is None or found >= high:
            continue
        code = "in_gap" if piece.before < piece.offset else "in_fold"
        if code not in told:
            told.add(code)
            yield code, _transition_text(s, walker, code, found, start)


_NO_EFFECT: Final = (
    "gap and fold have no effect: "
    "an expression whose minute or hour begins with * follows real time"
)
_NUMBERS: Final = (
    "is read as cron does: 0 and 7 are Sunday, 1 is Monday (Quartz counts Sunday as 1); "
    "names say it without doubt"
)


def _transition_text(
    s: Cron | CalendarInterval, walker: Walker, code: str, local: int, start: int
) -> str:
    shown = (EPOCH + timedelta(seconds=local)).strftime("%Y-%m-%d %H:%M")
    if code == "in_fold":
        which = {Fold.FIRST: "its first pass", Fold.SECOND: "its second pass", Fold.BOTH: "both"}
        return f"{shown} occurs twice in {s.zone}; it fires at {which[s.fold]} (fold: {s.fold})"
    if s.gap is Gap.SKIP:
        return f"{shown} does not exist in {s.zone}; that run is left out (gap: skip)"
    due = walker.next(start - 1)
    moved = local_text(start if due is None else due, walker.zone)
    return f"{shown} does not exist in {s.zone}; it fires at {moved} (gap: {s.gap})"
