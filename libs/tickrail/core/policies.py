"""What a job's owner chose: misfire, overlap, retry, and what is worse after an uncertain end.

Values only, and the arithmetic that belongs to them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from tickrail.core.outcomes import matches


class MisfirePolicy(StrEnum):
    """What happens to slots that were missed by more than the grace time."""

    FIRE_ONCE = "fire_once"
    FIRE_ALL = "fire_all"
    SKIP = "skip"


class CatchUpOrder(StrEnum):
    """Which end of a range of slots comes first, and is launched where not all of them may be."""

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Misfire:
    """A slot late by less than `grace` is on time; older ones follow the policy.

    `max_count`, `max_age`, `order` and `per_minute` bound what `fire_all` launches.
    """

    policy: MisfirePolicy = MisfirePolicy.FIRE_ONCE
    grace: timedelta = timedelta(minutes=1)
    max_count: int = 10
    max_age: timedelta = timedelta(days=1)
    order: CatchUpOrder = CatchUpOrder.OLDEST
    per_minute: int = 60


class Overlap(StrEnum):
    """What a due slot does while another launch of the job is open."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"


class IfUncertain(StrEnum):
    """What is worse for this job: a missing run (`rerun`) or a doubled one (`skip`)."""

    RERUN = "rerun"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff.

    After failure n the delay is `initial * multiplier^(n-1)`, at most `maximum`, then spread over
    plus or minus `jitter` of itself, but never beyond `maximum`. `max_attempts` counts failures:
    at that many, the launch is dead. `on` and `not_on` are patterns of outcomes (`core.outcomes`):
    a failure named in `not_on` is never tried again, one named in `on` is although its executor
    holds that for of no use.
    """

    max_attempts: int = 5
    initial: timedelta = timedelta(seconds=2)
    multiplier: float = 2.0
    maximum: timedelta = timedelta(hours=1)
    jitter: float = 0.2
    on: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()

    def again(self, names: Collection[str], *, usual: bool) -> bool:
        """Whether a failure with these names may be tried again.

        Args:
            names: its outcome, and its further names.
            usual: what holds where the policy names none of them.
        """
        if any(matches(pattern, names) for pattern in self.not_on):
            return False
        return usual or any(matches(pattern, names) for pattern in self.on)

    def delay(self, failures: int, spread: float, retry_after: float | None = None) -> timedelta:
        """How long to wait before the attempt that follows failure number `failures`.

        Args:
            failures: failures so far, the present one included; at least 1.
            spread: where in the jitter band, 0 up to 1; 0.5 is the middle.
            retry_after: seconds that the target asked for; honoured up to `maximum`.
        """
        initial, maximum = self.initial.total_seconds(), self.maximum.total_seconds()
        try:
            delay = min(maximum, initial * self.multiplier ** (failures - 1))
        except OverflowError:
            delay = maximum
        low, high = delay * (1 - self.jitter), min(maximum, delay * (1 + self.jitter))
        delay = min(high, low + spread * (high - low))
        if retry_after is not None:
            delay = max(delay, min(retry_after, maximum))
        return timedelta(seconds=delay)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most `limit` launches of a tenant with the same `key` run at a time."""

    key: str
    limit: int = 1


class Priority(StrEnum):
    """The class of a launch: which topic its first attempt goes to."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 for high, 2 for low: as stored."""
        return _RANKS[self]


_RANKS = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}
PRIORITIES = tuple(Priority)
"""By rank."""
