"""Quotas: how much of each thing a tenant may have, and what is left of it.

Pure. An operator sets quotas for a tenant, or for everybody who has none of its own. What is
counted in a window (launches of a minute, of a day) is counted by the instant at which the launch
record is made, in the same transaction; windows begin at the full minute and at midnight, UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Any, Final, NamedTuple

from tickrail.core.definition import MAX_PAYLOAD, instant_text
from tickrail.core.documents import Reader
from tickrail.core.durations import format_duration, parse_duration

UNLIMITED: Final = "unlimited"
"""In a document: as much as there is, whatever holds for everybody else."""
_SHOWN_TOO: Final = "running"
"""What is shown among the quotas and set elsewhere; as operators read it, it is taken back."""
LEVELS: Final = (80, 100)
"""Per cent of a quota that its tenant is told of when they are reached, once in a window."""


class Quota(StrEnum):
    """What a quota is of."""

    JOBS = "jobs"
    LAUNCHES_PER_MINUTE = "launches_per_minute"
    LAUNCHES_PER_DAY = "launches_per_day"
    PAYLOAD_BYTES = "payload_bytes"
    REQUESTS_PER_SECOND = "requests_per_second"
    REQUEST_BURST = "request_burst"
    MIN_INTERVAL = "min_interval"


WINDOWS: Final[Mapping[Quota, timedelta]] = {
    Quota.LAUNCHES_PER_MINUTE: timedelta(minutes=1),
    Quota.LAUNCHES_PER_DAY: timedelta(days=1),
}
"""How long a window of each counted quota is."""
_MOST: Final[Mapping[Quota, int]] = {
    Quota.JOBS: 100_000_000,
    Quota.LAUNCHES_PER_MINUTE: 1_000_000_000,
    Quota.LAUNCHES_PER_DAY: 1_000_000_000,
    Quota.PAYLOAD_BYTES: MAX_PAYLOAD,
    Quota.REQUEST_BURST: 1_000_000,
}
_LEAST: Final[Mapping[Quota, int]] = {Quota.REQUEST_BURST: 1}
_SLOWEST: Final = 0.001
_FASTEST: Final = 100_000.0
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(days=366)

Amounts = Mapping[Quota, float | None]
"""Quotas that are set, as numbers (a length of time in seconds); None: as much as there is."""


class RequestRate(NamedTuple):
    """Requests that may come: so many in a second, and so many at once after a rest."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What a tenant may have; None: as much as there is.

    `burst` is what is set, which holds as soon as there is a rate, too.
    """

    jobs: int | None = None
    launches_per_minute: int | None = None
    launches_per_day: int | None = None
    payload_bytes: int = MAX_PAYLOAD
    requests: RequestRate | None = None
    min_interval: timedelta | None = None
    burst: int | None = None

    def document(self) -> dict[str, Any]:
        """As the API answers it."""
        rate = self.requests
        found = {
            "jobs": self.jobs,
            "launches_per_minute": self.launches_per_minute,
            "launches_per_day": self.launches_per_day,
            "payload_bytes": self.payload_bytes,
            "requests_per_second": None if rate is None else plain_number(rate.per_second),
            "request_burst": self.burst if rate is None else rate.burst,
            "min_interval": None if not self.min_interval else format_duration(self.min_interval),
        }
        return {name: or_unlimited(amount) for name, amount in found.items()}


def or_unlimited(amount: object) -> object:
    """An amount as the API answers it: where there is no end to it, the word for that."""
    return UNLIMITED if amount is None else amount


def quotas_of(own: Amounts, shared: Amounts) -> Quotas:
    """What holds for a tenant.

    Args:
        own: what an operator set for it.
        shared: what an operator set for everybody.
    """
    found = {**shared, **own}

    def whole(quota: Quota) -> int | None:
        amount = found.get(quota)
        return None if amount is None else int(amount)

    payload, interval = whole(Quota.PAYLOAD_BYTES), found.get(Quota.MIN_INTERVAL)
    return Quotas(
        jobs=whole(Quota.JOBS),
        launches_per_minute=whole(Quota.LAUNCHES_PER_MINUTE),
        launches_per_day=whole(Quota.LAUNCHES_PER_DAY),
        payload_bytes=MAX_PAYLOAD if payload is None else payload,
        requests=request_rate(found.get(Quota.REQUESTS_PER_SECOND), whole(Quota.REQUEST_BURST)),
        min_interval=None if interval is None else timedelta(seconds=interval),
        burst=whole(Quota.REQUEST_BURST),
    )


def request_rate(per_second: float | None, burst: int | None = None) -> RequestRate | None:
    """A rate of requests; without a burst, what comes in a second may come at once."""
    if per_second is None:
        return None
    return RequestRate(per_second, burst or max(1, ceil(per_second)))


def read_amounts(document: object, where: str = "/quotas") -> dict[Quota, float | None]:
    """Quotas from a document: numbers, a duration for `min_interval`, or `"unlimited"`.

    A member that is left out, or null, is not set: what holds for everybody holds.

    Args:
        document: the JSON value.
        where: its JSON pointer.

    Raises:
        InvalidInputError: with every problem.
    """
    running = document.get(_SHOWN_TOO) if isinstance(document, dict) else None
    if isinstance(document, dict):
        document = {name: value for name, value in document.items() if name != _SHOWN_TOO}
    reader = Reader(document, where)
    found: dict[Quota, float | None] = {}
    for quota in Quota:
        if not reader.has(quota):
            continue
        if reader.raw(quota) == UNLIMITED:
            found[quota] = None
        else:
            found[quota] = _read(reader, quota)
    if running not in (None, UNLIMITED):
        right = "max_running of the tenant: PATCH /v1/tenants/{tenant}"
        reader.problem(_SHOWN_TOO, "is not set here", right)
    reader.finish("list of quotas")
    return found


def amounts_document(amounts: Amounts) -> dict[str, Any]:
    """As `read_amounts` reads them; what is not set is left out."""
    return {quota.value: _shown(quota, amounts[quota]) for quota in Quota if quota in amounts}


def _read(reader: Reader, quota: Quota) -> float | None:
    expected = f"or {UNLIMITED!r}"
    before = len(reader.problems)
    value: float
    if quota is Quota.MIN_INTERVAL:
        length = reader.duration(quota, _SHORTEST, low=_SHORTEST, high=_LONGEST)
        value = length.total_seconds()
    elif quota is Quota.REQUESTS_PER_SECOND:
        value = reader.number(quota, 1.0, low=_SLOWEST, high=_FASTEST)
    else:
        value = reader.whole(quota, 0, low=_LEAST.get(quota, 0), high=_MOST[quota])
    if len(reader.problems) > before:
        last = reader.problems[-1]
        right = f"{last.expected}, {expected}" if last.expected else expected
        reader.problems[-1] = type(last)(last.pointer, last.message, right)
    return value


def _shown(quota: Quota, amount: float | None) -> Any:  # noqa: ANN401 - a JSON value
    if amount is None:
        return UNLIMITED
    if quota is Quota.MIN_INTERVAL:
        return format_duration(timedelta(seconds=amount))
    return plain_number(amount)


def plain_number(amount: float) -> float:
    """2.0 as 2."""
    return int(amount) if amount == int(amount) else amount


def quota_text(text: str) -> tuple[str, object]:
    """A quota as a command names it: `jobs=100`, `min_interval=1m`, `jobs=unlimited`, `jobs=`.

    Nothing behind the sign: it is not set any more (None).

    Raises:
        ValueError: says what would be right.
    """
    name, sign, value = (part.strip() for part in text.partition("="))
    if not sign or name not in set(Quota):
        raise ValueError(f"{text!r} is not <quota>=<value>; quotas: {', '.join(Quota)}")
    if not value:
        return name, None
    if value == UNLIMITED:
        return name, UNLIMITED
    if name == Quota.MIN_INTERVAL:
        parse_duration(value)
        return name, value
    try:
        return name, float(value) if name == Quota.REQUESTS_PER_SECOND else int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number for {name}") from None


# --- what is counted ------------------------------------------------------------------------------


class Window(NamedTuple):
    """A stretch of time in which something is counted."""

    starts_at: datetime
    ends_at: datetime


class Counted(NamedTuple):
    """What is used of a quota in a window, and how much of it its tenant was told of."""

    quota: Quota
    window: Window
    limit: int
    used: int = 0
    told: int = 0

    @property
    def left(self) -> int:
        """How much may still be used."""
        return max(0, self.limit - self.used)


class Reached(NamedTuple):
    """So many per cent of a quota are used."""

    quota: Quota
    percent: int
    limit: int
    used: int
    window: Window


def window_of(quota: Quota, now: datetime) -> Window:
    """The window that an instant is in; of a quota that has none of its own, the day."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    length = WINDOWS.get(quota, timedelta(days=1))
    starts_at = day + length * ((now - day) // length)
    return Window(starts_at, starts_at + length)


def left_of(counted: Sequence[Counted]) -> int:
    """How many more fit under all of these."""
    return min(c.left for c in counted)


def reached(counted: Counted, more: int) -> Reached | None:
    """The highest level that using so many more reaches, unless it was told of."""
    used = counted.used + more
    levels = [p for p in LEVELS if more > 0 and used * 100 >= counted.limit * p]
    if not levels or levels[-1] <= counted.told:
        return None
    return Reached(counted.quota, levels[-1], counted.limit, used, counted.window)


def reached_document(what: Reached) -> dict[str, Any]:
    """What the audit log and a notice say of it."""
    return {
        "quota": what.quota.value,
        "percent": what.percent,
        "limit": what.limit,
        "used": what.used,
        "window_starts_at": instant_text(what.window.starts_at),
        "window_ends_at": instant_text(what.window.ends_at),
    }
