"""Sends the watchdog's alarms to the operators' webhook, until each has arrived.

One is on its way at a time. A newer one takes the place of one that has not arrived: it says how
things stand.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog

from tickrail.core.clock import Clock
from tickrail.core.definition import instant_text
from tickrail.core.execution import Executor, Outcome, Run
from tickrail.core.ids import uuid7
from tickrail.core.notices import Hook
from tickrail.core.ports_metrics import Metrics
from tickrail.core.watch_alarm import Alarm

log = structlog.get_logger("tickrail.watchdog")

OUTCOMES: Final = ("delivered", "failed", "given_up")
"""Of deliveries, as they are counted."""
GIVE_UP_AFTER: Final = timedelta(hours=24)
TIMEOUT: Final = 15.0
"""Seconds that a delivery may take."""
_FIRST: Final = 5.0
_LONGEST: Final = 300.0
_NOBODY: Final = UUID(int=0)


@dataclass(slots=True)
class _Owed:
    """An alarm on its way."""

    id: UUID
    alarm: Alarm
    at: datetime
    attempts: int = 0
    next_at: float = 0.0
    flying: bool = False


def alarm_event(alarm: Alarm, event: UUID, at: datetime) -> dict[str, Any]:
    """An alarm as its receiver gets it: a CloudEvent, the same at every delivery."""
    return {
        "specversion": "1.0",
        "id": str(event),
        "source": "/watchdog",
        "type": f"tickrail.watchdog.{alarm.said.value}",
        "time": instant_text(at),
        "datacontenttype": "application/json",
        "text": alarm.text,
        "data": dict(alarm.data),
    }


class AlarmSender:
    """The body of a loop, and the `AlarmTaker` of the watchdog. Safe to use from several threads.

    `take` is called by another thread; what the executor tells comes from its own.
    """

    def __init__(
        self, executor: Executor | None, hook: Hook | None, clock: Clock, metrics: Metrics
    ) -> None:
        """Nothing to send.

        Args:
            executor: makes calls.
            hook: where to; None: alarms are in the log and the metrics alone.
            clock: the clock.
            metrics: where deliveries are counted.
        """
        self._executor = executor
        self._hook = hook
        self._clock = clock
        self._metrics = metrics
        self._news: deque[Alarm] = deque(maxlen=1)
        self._arrived: deque[tuple[UUID, Outcome]] = deque()
        self._owed: _Owed | None = None
        for outcome in OUTCOMES:
            metrics.count("watchdog_alarms_total", 0, outcome=outcome)

    def take(self, alarm: Alarm) -> None:
        """Send it, in place of one that has not arrived yet."""
        if self._hook is not None:
            self._news.append(alarm)

    def run_once(self) -> float:
        """Note what has arrived, send what is due; seconds until the next look."""
        while self._arrived:
            self._ended(*self._arrived.popleft())
        if self._news:
            now = self._clock.now()
            self._owed = _Owed(uuid7(self._clock), self._news.popleft(), now)
        owed = self._owed
        if owed is None or owed.flying or owed.next_at > self._clock.monotonic():
            return 0.5
        self._send(owed)
        return 0.1

    def _send(self, owed: _Owed) -> None:
        if self._hook is None or self._executor is None:
            return
        owed.attempts += 1
        owed.flying = True
        run = Run(
            launch_id=owed.id,
            job_id=owed.id,
            job_name="",
            tenant_id=_NOBODY,
            scheduled_at=owed.at,
            attempt=owed.attempts,
            claim=owed.attempts,
            target=self._hook.target(),
            payload=alarm_event(owed.alarm, owed.id, owed.at),
            timeout=TIMEOUT,
            secrets=self._hook.secrets(),
        )
        self._executor.start(run, self._done)

    def _done(self, run: Run, outcome: Outcome) -> None:
        self._arrived.append((run.launch_id, outcome))

    def _ended(self, event: UUID, outcome: Outcome) -> None:
        owed = self._owed
        if outcome.ok:
            self._metrics.count("watchdog_alarms_total", outcome="delivered")
            if owed is not None and owed.id == event:
                self._owed = None
            return
        mine = owed is not None and owed.id == event
        late = owed is not None and self._clock.now() - owed.at >= GIVE_UP_AFTER
        given_up = not mine or late
        self._metrics.count("watchdog_alarms_total", outcome="given_up" if given_up else "failed")
        error = f"{outcome.outcome}: {outcome.message}"
        log.warning("alarm_not_delivered", given_up=given_up, error=error, alarm=str(event))
        if owed is None or not mine:
            return
        if late:
            self._owed = None
            return
        owed.flying = False
        delay = min(_LONGEST, _FIRST * 2.0 ** min(owed.attempts - 1, 20))
        asked = outcome.retry_after or 0.0
        spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads a backoff, keeps no secret
        owed.next_at = self._clock.monotonic() + max(delay * spread, min(asked, _LONGEST))
