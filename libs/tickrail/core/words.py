"""Schedules in plain English: `At 02:00 every day in Europe/Berlin`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from tickrail.core.cron import CronExpression
from tickrail.core.cron_words import MONTHS, WEEKDAYS, cron_words, joined
from tickrail.core.definition import Plan
from tickrail.core.schedule_document import clock_text
from tickrail.core.schedule_values import (
    AnyOf,
    At,
    CalendarInterval,
    Every,
    Fold,
    Gap,
    MeasuredFrom,
    Schedule,
    Unit,
)
from tickrail.core.timetable import CalendarUse, OnExcluded


def in_words(schedule: Schedule | None) -> str:
    """The schedule as a sentence without the full stop."""
    if schedule is None:
        return "By hand only"
    if isinstance(schedule, AnyOf):
        parts = _parts(schedule)
        return "; and ".join([parts[0], *(p[0].lower() + p[1:] for p in parts[1:])])
    if isinstance(schedule, Every):
        return _every(schedule)
    if isinstance(schedule, At):
        return _once(schedule)
    if isinstance(schedule, CalendarInterval):
        return f"{_calendar(schedule)} in {schedule.zone}{_changes(schedule.gap, schedule.fold)}"
    expression = CronExpression.parse(schedule.expression, hash_key=schedule.hash_key)
    changes = "" if expression.wild else _changes(schedule.gap, schedule.fold)
    return f"{cron_words(expression)} in {schedule.zone}{changes}"


def plan_words(plan: Plan) -> str:
    """A job's schedule as a sentence, with its start, its end and what else bounds it."""
    text = in_words(plan.schedule)
    if plan.schedule is None:
        return text
    if plan.calendars is not None:
        text += _calendars(plan.calendars)
    if plan.starts_at is not None:
        text += f", not before {_instant(plan.starts_at)}"
    if plan.ends_at is not None:
        text += f", not after {_instant(plan.ends_at)}"
    if plan.max_launches is not None:
        text += f", {plan.max_launches} time{'s' * (plan.max_launches > 1)} at most"
    return text


def _parts(schedule: AnyOf) -> list[str]:
    """The parts in words; both passes of one local time are said once."""
    said: dict[str, int] = {}
    for part in schedule.parts:
        text = in_words(part)
        said[text] = said.get(text, 0) + (isinstance(part, At) and part.local is not None)
    return [f"{text}, at both passes" if times > 1 else text for text, times in said.items()]


def _changes(gap: Gap, fold: Fold) -> str:
    """What happens at clock changes, where it is not the default."""
    told = [t for t in (_GAPS.get(gap), _FOLDS.get(fold)) if t]
    return f" ({', '.join(told)})" if told else ""


_GAPS: Final = {
    Gap.SHIFT: "later by the gap where the clock skips it",
    Gap.SKIP: "left out where the clock skips it",
}
_FOLDS: Final = {
    Fold.SECOND: "at the second pass where it comes twice",
    Fold.BOTH: "at both passes where it comes twice",
}


def _calendars(use: CalendarUse) -> str:
    text = f", only in {joined(use.include)}" if use.include else ""
    if use.exclude:
        text += f", not in {joined(use.exclude)}"
    if use.on_excluded is OnExcluded.NEXT_ALLOWED:
        text += " but at the next time that is allowed"
    return text


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _once(s: At) -> str:
    if s.local is not None:
        return f"Once at {s.local.replace('T', ' ')} in {s.zone}"
    return f"Once at {_instant(s.instant)}"


def _every(s: Every) -> str:
    text = f"Every {_period(s.period)}"
    if s.measured_from is MeasuredFrom.COMPLETION:
        return f"{text} after the last run ended"
    return f"{text} from {_instant(s.anchor)}"


def _period(period: timedelta) -> str:
    seconds = period.days * 86400 + period.seconds
    parts: list[str] = []
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {name}{'s' * (amount > 1)}")
    if parts and len(parts) == 1 and parts[0].startswith("1 "):
        return parts[0][2:]
    return joined(parts)


def _calendar(s: CalendarInterval) -> str:
    unit = s.unit.value
    every = f"every {unit}" if s.every == 1 else f"every {s.every} {unit}s"
    at = f"At {clock_text(s.at)}"
    if s.unit is Unit.DAY:
        return f"{at} {every}"
    if s.unit is Unit.WEEK:
        name = WEEKDAYS[int(s.on or 0)]
        return f"{at} on {name} {every}" if s.every > 1 else f"{at} every {name}"
    if isinstance(s.on, int):
        return f"{at} on day {s.on} of {every}"
    if s.on == "last":
        return f"{at} on the last day of {every}"
    number, _, weekday = str(s.on).partition(" ")
    if weekday:
        name = next(day for day in WEEKDAYS if day.lower().startswith(weekday))
        return f"{at} on the {number} {name} of {every}"
    month, _, day = str(s.on).partition("-")
    return f"{at} on {int(day)} {MONTHS[int(month) - 1]} of {every}"
