"""Dead letters: what a dead or abandoned launch owes its queue's DLQ topic.

The worker that ended the launch publishes and settles at once; the owner does so for what is owed
for more than 30 s (the worker died in between, or the reaper declared it dead). A letter published
twice has the same id, (launch, attempt).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog

from tickrail.core.ids import LaunchId
from tickrail.core.messages import DeadLetter, FailedAttempt
from tickrail.core.ports import OwedLetter, Owned, OwnerStore
from tickrail.core.ports_bus import Headers, Publisher
from tickrail.core.ports_metrics import Metrics
from tickrail.core.states import State

log = structlog.get_logger("tickrail.deadletters")

Settled = tuple[LaunchId, datetime, int]
_REPORT_WAIT = 0.5


class Letter(NamedTuple):
    """The token of a dead letter on its way."""

    settled: Settled


def letter_of(owed: OwedLetter) -> DeadLetter:
    """The dead letter of a launch."""
    result = owed.result
    outcome = str(result.get("outcome", "unknown"))
    if owed.state is State.ABANDONED:
        reason = "uncertain"
    elif outcome in ("too_large", "worker_lost"):
        reason = outcome
    elif result.get("retryable") is False:
        reason = "not_retryable"
    else:
        reason = "attempts_exhausted"
    return DeadLetter(
        launch=owed.id,
        attempt=owed.attempt,
        job=owed.job,
        job_name=owed.job_name,
        tenant=owed.tenant,
        queue=owed.queue,
        scheduled_at=owed.scheduled_at,
        died_at=owed.finished_at,
        reason=reason,
        error=f"{outcome}: {result.get('message', '')}".rstrip(": "),
        failures=owed.failures,
        redrive_count=owed.redrive_count,
        history=tuple(_attempt(a) for a in owed.history),
    )


def _attempt(row: Any) -> FailedAttempt:  # noqa: ANN401 - a JSON object
    return FailedAttempt(
        attempt=row["attempt"],
        outcome=row["outcome"],
        message=row["message"],
        started_at=_instant(row.get("started_at")),
        finished_at=_instant(row.get("finished_at")),
        worker=row.get("worker"),
    )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class LetterBox:
    """Publishes dead letters with the codec and the names it is given. One thread."""

    def __init__(
        self,
        publisher: Publisher,
        topic: Callable[[str], str],
        encode: Callable[[DeadLetter], tuple[bytes, Headers]],
        metrics: Metrics,
    ) -> None:
        """A letter box.

        Args:
            publisher: of the bus, shared with nobody else's thread.
            topic: the DLQ topic of a queue.
            encode: a letter's value and headers.
            metrics: where letters are counted.
        """
        self._publisher = publisher
        self._topic = topic
        self._encode = encode
        self._metrics = metrics

    @property
    def outstanding(self) -> int:
        """Letters handed over whose report has not come."""
        return self._publisher.outstanding

    def post(self, owed: Sequence[OwedLetter], timeout: float) -> list[Settled]:
        """Publish letters and wait for their reports; those that arrived, to be settled."""
        for item in owed:
            letter = letter_of(item)
            value, headers = self._encode(letter)
            token = Letter((item.id, item.scheduled_at, item.attempt))
            topic, key = self._topic(item.queue), str(item.job).encode()
            if not self._publisher.publish(topic, -1, key, value, headers, token):
                break  # the local queue is full; the rest stays owed
            self._metrics.count("dead_letters_total", reason=letter.reason)
        settled: list[Settled] = []
        for delivery in self._publisher.flush(timeout):
            if not isinstance(delivery.token, Letter):
                continue
            if delivery.error is None:
                settled.append(delivery.token.settled)
            else:
                log.warning(
                    "dead_letter_not_published",
                    error=str(delivery.error),
                    launch=str(delivery.token.settled[0]),
                )
        return settled


class OwedLetters:
    """The owner's part: letters owed for too long. Used by the owner's thread."""

    def __init__(
        self,
        store: OwnerStore,
        box: LetterBox,
        *,
        older_than: timedelta = timedelta(seconds=30),
        batch: int = 100,
    ) -> None:
        self._store = store
        self._box = box
        self._older_than = older_than
        self._batch = batch

    def run_once(self, owned: Owned) -> int:
        """Publish and settle one batch; how many.

        Letters still under way are waited for, not published again: while the bus is away, the
        owner's other work goes on and no more letters pile up.
        """
        under_way = self._box.outstanding > 0
        owed = [] if under_way else self._store.owed(owned, self._older_than, self._batch)
        if not owed and not under_way:
            return 0
        settled = self._box.post(owed, timeout=_REPORT_WAIT)
        if settled:
            self._store.settle(settled)
            log.info("dead_letters_published", count=len(settled))
        return len(settled)
