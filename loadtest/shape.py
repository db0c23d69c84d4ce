"""A day of schedules as people write them, made short: which jobs, and when each is due.

The expressions are those found in the wild (tests/data/cron_corpus.csv), each as often as it was
met there. What is left out: what names no instants of a day by itself (@once, rates), what is due
more often than once a minute (demonstrations, mostly), and what is not due on the day.

A day of 86,400 s becomes `seconds`: an instant t of the day is due t * seconds / 86,400 after the
start, rounded up to a whole second, since slots have no fractions. Slots of one job that fall on
one second are one; what is rounded to the very end is the next day's. A job gets a real schedule
that repeats within the hour: `any_of` cron expressions with seconds, between `starts_at` and
`ends_at`.
"""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tickrail.core.errors import InvalidInputError
from tickrail.core.schedule import next_after, parse_schedule
from tickrail.core.schedule_document import MAX_PARTS

CORPUS = Path(__file__).parents[1] / "tests/data/cron_corpus.csv"
DIALECTS = {"unix5", "k8s", "github-actions", "spring6", "robfig6", "quartz", "at-name"}
DAY = timedelta(days=1)
MOST = 24 * 60
"""Slots of a day of one job: one a minute."""
LONGEST = 3600
"""Seconds that a day may be made: the schedules name minutes and seconds, and no hours."""
_JOB = UUID("01920000-0000-7000-8000-000000000001")


@dataclass(frozen=True)
class Pattern:
    """An expression of the corpus on the day: how often it was met, its slots by second of day."""

    expression: str
    time_zone: str
    seen: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Shaped:
    """A job of the short day: its schedule's document, and the offsets of its slots in seconds."""

    schedule: Mapping[str, Any]
    offsets: tuple[int, ...]


def day_of(rows: Iterable[Mapping[str, str]], date: datetime) -> list[Pattern]:
    """The patterns of the rows that are due on the day that begins at an instant (UTC)."""
    found = []
    for row in rows:
        if row["dialect"] not in DIALECTS:
            continue
        zone = row["time_zone"] or "UTC"
        slots = _slots(row["expression"], zone, date)
        if slots:
            found.append(Pattern(row["expression"], zone, int(row["seen"]), slots))
    return found


def corpus(date: datetime) -> list[Pattern]:
    """The patterns of the whole corpus."""
    with CORPUS.open(encoding="utf-8", newline="") as stream:
        return day_of(csv.DictReader(stream), date)


def _slots(expression: str, zone: str, date: datetime) -> tuple[int, ...]:
    """Seconds of the day; none where the expression is no schedule of ours, or too dense."""
    document = {"cron": expression, "time_zone": zone}
    try:
        schedule = parse_schedule(document, job=_JOB, now=date)
    except InvalidInputError:
        return ()
    assert schedule is not None
    found: list[int] = []
    at = next_after(schedule, date - timedelta(seconds=1))
    while at is not None and at < date + DAY:
        found.append(int((at - date).total_seconds()))
        if len(found) > MOST:
            return ()
        at = next_after(schedule, at)
    return tuple(found)


@cache
def shorten(slots: tuple[int, ...], seconds: int) -> tuple[int, ...]:
    """The offsets of a day's slots when the day lasts so many seconds."""
    whole = int(DAY.total_seconds())
    return tuple(sorted({-(-slot * seconds // whole) for slot in slots if slot < whole}))


def schedule_of(offsets: Sequence[int], start: datetime) -> list[tuple[dict[str, Any], list[int]]]:
    """Schedules, due at these offsets from a whole second within the hour after it, and no others.

    More than one where one document may not hold so many parts; each with its own offsets.

    Raises:
        ValueError: an offset is an hour or more.
    """
    if offsets and max(offsets) >= LONGEST:
        raise ValueError(f"offset {max(offsets)} s is not within {LONGEST} s")
    by_minute: dict[int, set[int]] = defaultdict(set)
    offset_at: dict[tuple[int, int], int] = {}
    for offset in offsets:
        at = (start + timedelta(seconds=offset)).astimezone(UTC)
        by_minute[at.minute].add(at.second)
        offset_at[at.minute, at.second] = offset
    minutes: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for minute, its in sorted(by_minute.items()):
        minutes[tuple(sorted(its))].append(minute)
    parts = [
        (
            {"cron": f"{_field(its)} {_field(of)} * * * *"},
            [offset_at[m, s] for m in of for s in its],
        )
        for its, of in minutes.items()
    ]
    found = []
    for first in range(0, len(parts), MAX_PARTS):
        some = parts[first : first + MAX_PARTS]
        document = some[0][0] if len(some) == 1 else {"any_of": [part for part, _ in some]}
        found.append((document, sorted(o for _, those in some for o in those)))
    return found


def _field(numbers: Sequence[int]) -> str:
    return "*" if len(numbers) == 60 else ",".join(map(str, numbers))


def short_day(
    patterns: Sequence[Pattern], launches: int, seconds: int, start: datetime, rng: random.Random
) -> list[Shaped]:
    """Jobs drawn by how often their expressions were met, until they have so many slots together.

    Raises:
        ValueError: no pattern is due on the day, or the day is to be longer than an hour.
    """
    if not patterns:
        raise ValueError("no expression is due on that day")
    if not 0 < seconds <= LONGEST:
        raise ValueError(f"a day of {seconds} s is not within {LONGEST} s")
    found: list[Shaped] = []
    made: dict[tuple[int, ...], list[Shaped]] = {}
    total, weights = 0, [p.seen for p in patterns]
    while total < launches:
        (pattern,) = rng.choices(patterns, weights)
        if pattern.slots not in made:
            offsets = shorten(pattern.slots, seconds)
            kept = [o for o in offsets if o < seconds]
            made[pattern.slots] = [Shaped(d, tuple(o)) for d, o in schedule_of(kept, start)]
        for one in made[pattern.slots]:
            found.append(one)
            total += len(one.offsets)
    return found


def busiest(jobs: Iterable[Shaped]) -> tuple[int, int]:
    """The offset with the most slots, and how many."""
    count = Counter(offset for job in jobs for offset in job.offsets)
    return max(count.items(), key=lambda item: (item[1], -item[0]))


def split(total: int, parts: int) -> list[int]:
    """A total among tenants of unequal size: the n-th has 1/n of the first one's part.

    Each has one at least; their sum is the total where that is as large as `parts`.
    """
    weights = [1 / n for n in range(1, parts + 1)]
    shares = [max(1, int(total * w / sum(weights))) for w in weights]
    shares[0] += max(0, total - sum(shares))
    return shares


def midnight(date: str) -> datetime:
    """The instant at which a day begins in UTC.

    Raises:
        ValueError: not a date such as 2026-01-07.
    """
    return datetime.combine(datetime.fromisoformat(date).date(), time(), UTC)
