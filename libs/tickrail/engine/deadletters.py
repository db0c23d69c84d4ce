"""Dead letters: what goes to a queue's DLQ topic.

A dead or abandoned launch owes a letter: the worker that ended it publishes and settles at once;
the owner does so for what is owed for more than 30 s (the worker died in between, or the reaper
declared it dead). A letter published twice has the same id, (launch, attempt).

A message that no worker can read goes there as it came, and into the view of the database before:
its offset waits for both. Published twice it has the same id, (topic, partition, offset).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog

from tickrail.core.dead_letters import Reason, error_text, reason_of
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import LaunchId, Partition
from tickrail.core.messages import DeadLetter, FailedAttempt, UndecodableLetter
from tickrail.core.ports import OwedLetter, Owned, OwnerStore
from tickrail.core.ports_bus import Headers, Publisher
from tickrail.core.ports_metrics import Metrics

log = structlog.get_logger("tickrail.deadletters")

Settled = tuple[LaunchId, datetime, int]
MOST_COUNTED = 100_000
"""Up to so many dead letters that wait are counted."""
_REPORT_WAIT = 0.5
_RAW_WAIT = 0.25
_RAW_START = 64 * 1024
"""How much is published of a message that is too large for the topic: as much as is kept."""


class Letter(NamedTuple):
    """The token of a dead letter on its way."""

    settled: Settled


def show_reasons(metrics: Metrics) -> None:
    """Show every reason from the start: an increase from nothing is one that no alert sees."""
    for reason in Reason:
        metrics.count("dead_letters_total", 0, reason=reason.value)


def letter_of(owed: OwedLetter) -> DeadLetter:
    """The dead letter of a launch."""
    return DeadLetter(
        launch=owed.id,
        attempt=owed.attempt,
        job=owed.job,
        job_name=owed.job_name,
        tenant=owed.tenant,
        queue=owed.queue,
        scheduled_at=owed.scheduled_at,
        died_at=owed.finished_at,
        reason=reason_of(owed.state, owed.result).value,
        error=error_text(owed.result),
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
    ) -> None:
        """A letter box.

        Args:
            publisher: of the bus, shared with nobody else's thread.
            topic: the DLQ topic of a queue.
            encode: a letter's value and headers.
        """
        self._publisher = publisher
        self._topic = topic
        self._encode = encode

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


class RawBox:
    """Keeps and publishes messages that no worker can read. Used by the intake's thread."""

    def __init__(
        self,
        publisher: Publisher,
        queue: Callable[[str], str],
        topic: Callable[[str], str],
        encode: Callable[[UndecodableLetter], tuple[bytes, Headers]],
        keep: Callable[[UndecodableLetter, str], None],
    ) -> None:
        """A box.

        Args:
            publisher: of the bus, this box's alone.
            queue: the queue of a topic that is read.
            topic: the DLQ topic of a queue.
            encode: a message's value and headers.
            keep: writes a message of a queue into the database; again does no harm.
        """
        self._publisher = publisher
        self._queue = queue
        self._topic = topic
        self._encode = encode
        self._keep = keep
        self._under_way: str | None = None
        self._too_large: str | None = None

    def bury(self, letter: UndecodableLetter) -> None:
        """Keep and publish a message; one after the other, each until it is there.

        While the bus is away a call does not wait: the message is under way, and what became of it
        is asked by the next call. So the partitions whose messages can be read go on.

        Of a message that the topic does not take, being larger than it may be with what is said of
        it, the start is published. Where not even that is taken, the database alone keeps it.

        Raises:
            UnavailableError: it is not there yet; to be called again.
        """
        first = self._under_way != letter.id
        if first:
            queue = self._queue(letter.topic)
            self._keep(letter, queue)
            cut = self._too_large == letter.id
            value, headers = self._encode(_start_of(letter) if cut else letter)
            topic, key = self._topic(queue), letter.id.encode()
            if not self._publisher.publish(topic, -1, key, value, headers, letter.id):
                raise UnavailableError("Kafka takes no dead letter: too many are under way.")
            self._under_way = letter.id
        for delivery in self._publisher.poll(_RAW_WAIT if first else 0.0):
            if delivery.token != letter.id:
                continue
            self._under_way = None
            error = delivery.error
            if error is None:
                return
            if error.permanent and self._too_large == letter.id:
                log.error("undecodable_not_published", message=letter.id, error=str(error))
                return
            if error.permanent:
                self._too_large = letter.id
            raise UnavailableError(f"The dead letter did not arrive: {error}")
        raise UnavailableError("Kafka has not acknowledged the dead letter yet.")


def _start_of(letter: UndecodableLetter) -> UndecodableLetter:
    """The letter with the start of its message, as it says."""
    error = f"the first {_RAW_START} of {len(letter.raw)} bytes; {letter.error}"
    return replace(letter, raw=letter.raw[:_RAW_START], error=error)


class OwedLetters:
    """The owner's part: letters owed for too long. Used by the owner's thread."""

    def __init__(
        self,
        store: OwnerStore,
        box: LetterBox,
        metrics: Metrics,
        *,
        older_than: timedelta = timedelta(seconds=30),
        batch: int = 100,
    ) -> None:
        self._store = store
        self._box = box
        self._metrics = metrics
        self._older_than = older_than
        self._batch = batch

    def moved(self, owned: Owned) -> None:
        """This is what the process owns now. The owner of partition 0 tells of all that waits."""
        if Partition(0) not in owned:
            self._metrics.gauge("dead_letters_waiting", 0)

    def run_once(self, owned: Owned) -> int:
        """Publish and settle one batch; how many. The owner of partition 0 counts what waits.

        Letters still under way are waited for, not published again: while the bus is away, the
        owner's other work goes on and no more letters pile up.
        """
        if Partition(0) in owned:
            self._metrics.gauge("dead_letters_waiting", self._store.dead_letters(MOST_COUNTED))
        under_way = self._box.outstanding > 0
        owed = [] if under_way else self._store.owed(owned, self._older_than, self._batch)
        if not owed and not under_way:
            return 0
        settled = self._box.post(owed, timeout=_REPORT_WAIT)
        if settled:
            self._store.settle(settled)
            log.info("dead_letters_published", count=len(settled))
        return len(settled)
