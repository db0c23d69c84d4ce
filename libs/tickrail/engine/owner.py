"""The owner's loop: tick, relay and housekeeping of the partitions that this process owns.

All of it runs on one thread and one connection, since every write takes the fence rows of its
partitions and a crowd of lock holders would starve a takeover. Each turn looks at `owned()` anew.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import TickrailError, UnavailableError
from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports import FenceReport, Owned, OwnerStore, Ticked
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_ownership import DropReason
from tickrail.engine.backfills import Backfills
from tickrail.engine.deadletters import OwedLetters
from tickrail.engine.ownership import Ownership
from tickrail.engine.reaper import Reaper
from tickrail.engine.relay import Relay
from tickrail.engine.tick import Tick
from tickrail.engine.zone_data import ZoneData

log = structlog.get_logger("tickrail.owner")
_AWAY_WAIT = 0.1
"""Seconds for a delivery report while Kafka is away: what comes ends the wait, and a turn each few
milliseconds would cost a twentieth of a core for as long as the outage lasts."""


@dataclass(frozen=True, slots=True)
class OwnerSettings:
    """How often the owner does what, in seconds.

    Attributes:
        tick_every: two ticks are at least this far apart while little is due, so that a crowd of
            launches goes through in one transaction.
        tick_within: and at most this far, whatever is known of the next due instant.
        sweep_every: housekeeping.
        letters_every: dead letters that are owed.
        fill_every: backfills, while nothing happens to them.
        fill_spacing: two passes over backfills are at least this far apart, however often their
            launches end: live launches come first.
        report_wait: how long a turn waits for delivery reports when there is nothing else to do.
        days_every: making and dropping days of the history.
        days_ahead: days of the history made ahead.
    """

    tick_every: float = 0.02
    tick_within: float = 1.0
    sweep_every: float = 1.0
    letters_every: float = 5.0
    fill_every: float = 1.0
    fill_spacing: float = 0.05
    report_wait: float = 0.005
    days_every: float = 600.0
    days_ahead: int = 3


@dataclass(frozen=True, slots=True)
class OwnerParts:
    """What the loop turns."""

    tick: Tick
    relay: Relay
    reaper: Reaper
    letters: OwedLetters
    zones: ZoneData
    backfills: Backfills


class OwnerLoop:
    """One turn of everything that an owner does. `wake()` may be called from any thread."""

    def __init__(
        self,
        ownership: Ownership,
        store: OwnerStore,
        parts: OwnerParts,
        clock: Clock,
        metrics: Metrics,
        settings: OwnerSettings | None = None,
    ) -> None:
        self._ownership = ownership
        self._store = store
        self._tick = parts.tick
        self._relay = parts.relay
        self._reaper = parts.reaper
        self._letters = parts.letters
        self._zones = parts.zones
        self._backfills = parts.backfills
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or OwnerSettings()
        self._woken = threading.Event()
        self._mine: Mapping[Partition, Epoch] = {}
        self._ticked_at = self._swept_at = self._letters_at = self._days_at = float("-inf")
        self._tick_at = self._fill_at = 0.0
        self._filled_at = float("-inf")
        self._fill_rest = 0.0
        self._full = False

    def wake(self) -> None:
        """Something changed: look at everything in the next turn."""
        self._woken.set()

    def run_once(self) -> float:
        """One turn; seconds until the next one should begin.

        Raises:
            UnavailableError: the database does not answer; nothing is lost.
        """
        with self._ownership.turn() as owned:
            if owned != self._mine:
                self._relay.forget(owned)
                self._letters.moved(owned)
                self._woken.set()  # what the last owner left is found at once
                self._mine = dict(owned)
            self._metrics.gauge("partitions_owned", len(owned))
            if not owned:
                self._watch_database()
                return self._settings.tick_within
            try:
                return self._turn(owned)
            except UnavailableError:
                self._reaper.database_failed()
                raise

    def _watch_database(self) -> None:
        """With nothing owned nothing is read here, yet an outage must be known to the reaper."""
        if "postgres" in self._ownership.unreachable():
            self._reaper.database_failed()
        else:
            self._reaper.database_answers(self._ownership.database_answered_at)

    def _still(self, owned: Owned) -> Owned:
        """What was owned when the turn began, if this process may still act for it."""
        return owned if self._ownership.trusted() else {}

    def _turn(self, owned: Owned) -> float:
        s = self._settings
        now = self._clock.monotonic()
        if self._woken.is_set():
            self._woken.clear()
            self._tick_at = self._swept_at = float("-inf")
            self._fill_at = min(self._fill_at, self._filled_at + self._fill_rest)
            self._relay.wake()
        self._keep_zones(owned)
        if now >= self._tick_at and (self._full or now >= self._ticked_at + s.tick_every):
            self._do_tick(owned, now)
        if now >= self._fill_at and not self._full:
            self._fill(owned)
        wait = self._report_wait()
        relayed = self._relay.run_once(self._still(owned), 0.0 if self._full else wait)
        for report in relayed.fence:
            self._refused(report, owned)
        if now >= self._swept_at + s.sweep_every:
            self._swept_at = now
            self._sweep(owned)
        if now >= self._letters_at + s.letters_every:
            self._letters_at = now
            self._letters.run_once(owned)
        if now >= self._days_at + s.days_every and Partition(0) in owned:
            self._days_at = now
            self._keep_days()
        if self._full or self._zones.busy:
            return 0.0
        after = self._clock.monotonic()
        pause = max(self._tick_at, self._ticked_at + s.tick_every)
        # Retries are found by a scan alone.
        pause = min(pause, self._fill_at, self._relay.scan_at, after + s.tick_within)
        if relayed.busy:
            return max(0.0, min(pause - after, wait))
        return max(0.0, pause - after)

    def _report_wait(self) -> float:
        """How long to wait for delivery reports; while Kafka is away longer, up to the tick."""
        wait = self._settings.report_wait
        if self._relay.away:
            return max(wait, min(_AWAY_WAIT, self._tick_at - self._clock.monotonic()))
        return wait

    def _keep_zones(self, owned: Owned) -> None:
        before = self._zones.ready(owned)
        self._refused(self._zones.run_once(self._still(owned)), owned)
        if self._zones.ready(owned) != before:
            self._tick_at = self._swept_at = float("-inf")

    def _do_tick(self, owned: Owned, now: float) -> None:
        ticked = self._tick.run_once(self._zones.ready(self._still(owned)))
        self._reaper.database_seen(ticked.now)
        self._refused(ticked.fence, owned)
        self._relay.accept(ticked.inserted, ticked.now)
        self._full = ticked.full
        self._ticked_at = now
        self._tick_at = now + self._until_next(ticked)

    def _until_next(self, ticked: Ticked) -> float:
        if ticked.full:
            return 0.0
        return _seconds(ticked.next_due, ticked.now, self._settings.tick_within)

    def _fill(self, owned: Owned) -> None:
        s, began = self._settings, self._clock.monotonic()
        filled = self._backfills.run_once(self._zones.ready(self._still(owned)))
        self._refused(filled.fence, owned)
        self._relay.accept(filled.inserted, filled.now)
        # Backfills take half of the time at most: live work comes first.
        self._filled_at = self._clock.monotonic()
        self._fill_rest = max(s.fill_spacing, self._filled_at - began)
        self._fill_at = self._filled_at + (self._fill_rest if filled.more else s.fill_every)

    def _sweep(self, owned: Owned) -> None:
        reaped = self._reaper.run_once(owned)
        for report in reaped.fences:
            self._refused(report, owned)
        ready = self._zones.ready(owned)
        resumed = self._tick.resume(ready)
        self._refused(resumed.fence, owned)
        completed = self._tick.complete(ready)
        self._refused(completed.fence, owned)
        if reaped.woke or resumed.jobs or completed.jobs:
            self._relay.wake()
            self._tick_at = float("-inf")

    def _keep_days(self) -> None:
        try:
            self._store.make_days(self._settings.days_ahead)
            dropped = self._store.drop_days()
        except TickrailError as e:
            log.warning("days_not_kept", error=str(e))
            return
        if dropped:
            log.info("days_dropped", count=dropped)

    def _refused(self, report: FenceReport, owned: Owned) -> None:
        for partitions, reason in (
            (report.higher, DropReason.FENCE_HIGHER),
            (report.lower, DropReason.FENCE_LOWER),
        ):
            for partition in partitions:
                self._metrics.count("fenced_writes_total")
                self._ownership.dropped(partition, reason, owned.get(partition))

    def drain(self, timeout: float) -> None:
        """Before stopping: wait for delivery reports and mark them."""
        with self._ownership.turn() as owned:
            if owned:
                self._relay.drain(owned, timeout)


def _seconds(instant: datetime | None, now: datetime, most: float) -> float:
    if instant is None:
        return most
    return min(most, max(0.0, (instant - now).total_seconds()))
