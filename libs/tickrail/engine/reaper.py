"""The reaper: claims that expired, lost messages, start deadlines, held launches.

It decides; the relay publishes. After a time without the database, or when the database's clock
jumped, it rests for one visibility timeout, so that workers can extend their claims first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from tickrail.core.clock import Clock
from tickrail.core.dead_letters import WORKER_LOST, reason_of
from tickrail.core.ports import FenceReport, LostClaim, Owned, OwnerStore
from tickrail.core.ports_metrics import Metrics
from tickrail.core.retry_document import parse_retry
from tickrail.core.states import State
from tickrail.core.verdict import Verdict, retry_verdict

log = structlog.get_logger("tickrail.reaper")


@dataclass(frozen=True, slots=True)
class ReaperSettings:
    """How the reaper behaves.

    Attributes:
        lost_after: how long a launch may be `queued` before its message is held for lost.
        rest: seconds it rests after an outage or a jump of the database's clock.
        outage: seconds without the database that count as an outage.
        jump: seconds by which the database's clock may move against ours.
        batch: rows a pass moves at most.
    """

    lost_after: timedelta = timedelta(minutes=5)
    rest: float = 30.0
    outage: float = 5.0
    jump: float = 1.0
    batch: int = 500


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one pass did. `woke`: launches became due, the relay should look."""

    moved: int = 0
    woke: bool = False
    fences: tuple[FenceReport, ...] = ()


class Reaper:
    """Housekeeping of owned partitions. Used by the owner's thread alone."""

    def __init__(
        self,
        store: OwnerStore,
        clock: Clock,
        metrics: Metrics,
        settings: ReaperSettings | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or ReaperSettings()
        self._seen: tuple[float, datetime] | None = None
        self._answered_at = float("-inf")
        self._away_since: float | None = None
        self._rest_until = 0.0

    def database_seen(self, now: datetime) -> None:
        """The database answered, and says that it is `now` there."""
        mono = self._clock.monotonic()
        self.database_answers(mono)
        if self._seen is not None:
            moved = (now - self._seen[1]).total_seconds() - (mono - self._seen[0])
            if abs(moved) > self._settings.jump:
                self._start_rest("database_clock_jumped", moved)
        self._seen = (mono, now)

    def database_failed(self) -> None:
        """The database did not answer: it may be away since it last did."""
        if self._away_since is None:
            never = self._answered_at == float("-inf")
            self._away_since = self._clock.monotonic() if never else self._answered_at

    def database_answers(self, at: float) -> None:
        """The database was there at this monotonic reading, and is as far as is known."""
        self._answered_at = max(self._answered_at, at)
        since, self._away_since = self._away_since, None
        if since is not None:
            away = self._answered_at - since
            if away > self._settings.outage:
                self._start_rest("database_was_away", away)

    def _start_rest(self, why: str, seconds: float) -> None:
        log.warning("reaper_rests", reason=why, seconds=round(seconds, 3))
        self._rest_until = self._clock.monotonic() + self._settings.rest

    @property
    def resting(self) -> bool:
        """Whether expired claims are left alone for now."""
        return self._clock.monotonic() < self._rest_until

    def run_once(self, owned: Owned) -> Reaped:
        """One pass over the owned partitions."""
        s = self._settings
        swept = self._store.sweep(owned, s.lost_after, s.batch)
        fences = [swept.fence] if swept.fence else []
        moved = dict(swept.moved)
        if not self.resting:
            reaped = self._store.reap(owned, s.batch, decide)
            if reaped.fence:
                fences.append(reaped.fence)
            if reaped.total:
                self._metrics.count("claims_expired_total", reaped.total)
                moved["claim_expired"] = reaped.total
            for state in (State.DEAD, State.ABANDONED):
                if n := reaped.moved.get(state.value):
                    reason = reason_of(state, {"outcome": WORKER_LOST})
                    self._metrics.count("dead_letters_total", n, reason=reason.value)
        if moved:
            log.info("swept", **moved)
        if n := moved.get("lost_message"):
            self._metrics.count("messages_lost_total", n)
        return Reaped(sum(moved.values()), bool(moved), tuple(fences))


def decide(lost: LostClaim) -> Verdict:
    """The verdict on a launch whose worker is gone: an uncertain failure."""
    spread = random.random()  # noqa: S311 - spreads a backoff, keeps no secret
    retry = parse_retry(lost.retry)
    return retry_verdict(
        retryable=retry.again([WORKER_LOST], usual=True),
        certain=False,
        rerun=lost.rerun,
        attempt=lost.attempt,
        failures=lost.failures,
        retry=retry,
        spread=spread,
    )
