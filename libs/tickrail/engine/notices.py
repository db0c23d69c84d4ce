"""Delivers notices: takes those that are due, has the executors send them, records what came of it.

A notice goes out as a run does, through the executor of its channel's kind: with the egress guard,
the circuit breaker, the signature and the topics of its tenant. Its id is the `Idempotency-Key` and
the `webhook-id`, the same at every try. A crash at any point: its hold runs out and it is sent
again, by whoever takes it then.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.execution import INTERRUPTED, Executor, Outcome, Run
from tickrail.core.notices import event, parse_hook, retry_after
from tickrail.core.on_failures import ChannelKind
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_notice import NoticeEnd, NoticeStore, OwedNotice, TenantRoom
from tickrail.core.secrets import SecretReader

log = structlog.get_logger("tickrail.notices")

OUTCOMES = ("delivered", "failed", "given_up")
"""Of deliveries, as they are counted."""
_BUSY = 0.1
_NOW = timedelta(0)


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """The numbers.

    Attributes:
        most: deliveries of this process at a time.
        each: of these, for one tenant: hooks that hang hold up nobody else's notices.
        timeout: seconds that a delivery may take.
        hold: how long a notice that was taken is nobody else's; longer than a delivery takes.
        every: seconds between two looks, about.
    """

    most: int = 32
    each: int = 8
    timeout: float = 15.0
    hold: timedelta = timedelta(seconds=60)
    every: float = 1.5


class NoticeSender:
    """The deliveries of one worker. Used by one thread, but for what executors tell."""

    def __init__(
        self,
        store: NoticeStore,
        executors: Sequence[Executor],
        secrets: SecretReader,
        clock: Clock,
        metrics: Metrics,
        settings: NoticeSettings | None = None,
    ) -> None:
        """Nothing taken yet.

        Args:
            store: the notices.
            executors: the worker's; a kind of channel that none of them runs is left to others.
            secrets: the hooks of tenants.
            clock: the clock.
            metrics: where deliveries are counted.
            settings: the numbers.
        """
        wanted = [(kind, e) for e in executors for kind in ChannelKind if kind.value in e.kinds]
        self._executors: Mapping[ChannelKind, Executor] = dict(wanted)
        self._store = store
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or NoticeSettings()
        self._out: dict[UUID, OwedNotice] = {}
        self._arrived: deque[tuple[UUID, Outcome]] = deque()
        self._ended: list[NoticeEnd] = []
        for outcome in OUTCOMES:
            metrics.count("notices_total", 0, outcome=outcome)  # so that the first one is a rise

    def run_once(self) -> float:
        """Record what has ended and take more; seconds until the next look.

        Raises:
            UnavailableError: the database does not answer.
        """
        self._settle()
        free = self._settings.most - len(self._out)
        taken: Sequence[OwedNotice] = ()
        if free and self._executors:
            out = Counter(notice.tenant for notice in self._out.values())
            room = TenantRoom(self._settings.each, out)
            taken = self._store.take(tuple(self._executors), free, self._settings.hold, room)
            for notice in taken:
                self._send(notice)
        if self._out or self._arrived or self._ended:
            return _BUSY
        return self._settings.every * random.uniform(0.8, 1.2)  # noqa: S311 - keeps workers apart

    def finish(self) -> None:
        """Record what has ended, if the database takes it; the rest is sent again by others."""
        try:
            self._settle()
        except UnavailableError as error:
            log.warning("notices_not_recorded", count=len(self._ended), error=str(error))

    # --- one delivery -----------------------------------------------------------------------------

    def _send(self, notice: OwedNotice) -> None:
        self._out[notice.id] = notice
        try:
            target, secrets = self._target(notice)
        except ValueError as error:
            self._arrived.append((notice.id, _failed("invalid_hook", str(error))))
        except (UnavailableError, SetupError) as error:
            self._arrived.append((notice.id, _failed("secret_unreadable", str(error))))
        else:
            executor = self._executors[notice.channel.kind]
            try:
                executor.start(self._run(notice, target, secrets), self._done)
            except Exception as error:
                # One that cannot be made must not hold up those that were taken with it.
                log.exception("notice_not_made", notice=str(notice.id), kind=notice.kind)
                message = f"{type(error).__name__}: {error}"
                self._arrived.append((notice.id, _failed("internal", message)))

    def _target(self, notice: OwedNotice) -> tuple[Mapping[str, Any], Mapping[str, bytes]]:
        """The target that a channel means, and the secrets of it.

        Raises:
            ValueError: the secret is gone, or holds no hook.
            UnavailableError, SetupError: it cannot be read.
        """
        channel = notice.channel
        if channel.kind is ChannelKind.KAFKA:
            return {"kafka": {"topic": channel.name, "key": notice.about}}, {}
        value = self._secrets.get(notice.tenant, [channel.name]).get(channel.name)
        if value is None:
            raise ValueError(f"there is no secret of the name {channel.name!r}")
        hook = parse_hook(value)
        return hook.target(), hook.secrets()

    def _run(
        self, notice: OwedNotice, target: Mapping[str, Any], secrets: Mapping[str, bytes]
    ) -> Run:
        return Run(
            launch_id=notice.id,
            job_id=notice.id,
            job_name="",
            tenant_id=notice.tenant,
            scheduled_at=notice.created_at,
            attempt=notice.attempts,
            claim=notice.attempts,
            target=target,
            payload=event(notice),
            timeout=self._settings.timeout,
            secrets=secrets,
        )

    def _done(self, run: Run, outcome: Outcome) -> None:
        self._arrived.append((run.launch_id, outcome))

    # --- what came of them ------------------------------------------------------------------------

    def _settle(self) -> None:
        while self._arrived:
            notice_id, outcome = self._arrived.popleft()
            if (notice := self._out.pop(notice_id, None)) is not None:
                self._ended.append(self._end(notice, outcome))
        if self._ended:
            self._store.settle(self._ended)
            self._ended = []

    def _end(self, notice: OwedNotice, outcome: Outcome) -> NoticeEnd:
        if outcome.ok:
            self._metrics.count("notices_total", outcome="delivered")
            return NoticeEnd(notice.id, notice.attempts, delivered=True)
        error = f"{outcome.outcome}: {outcome.message}" if outcome.message else outcome.outcome
        if outcome.outcome == INTERRUPTED:
            return NoticeEnd(notice.id, notice.attempts, delivered=False, retry=_NOW, error=error)
        spread = random.random()  # noqa: S311 - spreads a backoff, keeps no secret
        age = self._clock.now() - notice.created_at
        retry = retry_after(notice, age, spread, outcome.retry_after or outcome.snooze)
        self._metrics.count("notices_total", outcome="given_up" if retry is None else "failed")
        log.warning(
            "notice_not_delivered",
            given_up=retry is None,
            notice=str(notice.id),
            tenant=str(notice.tenant),
            kind=notice.kind,
            about=notice.about,
            channel=str(notice.channel),
            attempt=notice.attempts,
            error=error,
        )
        return NoticeEnd(notice.id, notice.attempts, delivered=False, retry=retry, error=error)


def _failed(outcome: str, message: str) -> Outcome:
    return Outcome(ok=False, outcome=outcome, message=message)
