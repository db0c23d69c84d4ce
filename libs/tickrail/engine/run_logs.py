"""The log of an attempt, as the API answers it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tickrail.core.errors import NotFoundError
from tickrail.core.execution import LOG_BYTES
from tickrail.core.ports_insight import InsightRecords
from tickrail.core.records import LaunchRecord
from tickrail.core.states import State

_LATE = timedelta(seconds=3)
"""How long after its end a run's last output may still come."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """The end of what an attempt printed.

    Attributes:
        attempt: its number.
        body: the last LOG_BYTES of it as text.
        size: bytes in all.
        truncated: whether `body` is not all of it.
        updated_at: when it was last written to; None: never.
        live: whether more may come.
    """

    attempt: int
    body: str
    size: int
    truncated: bool
    updated_at: datetime | None
    live: bool


def log_of(
    records: InsightRecords, launch: LaunchRecord, attempt: int | None, now: datetime
) -> RunLog:
    """What an attempt printed; nothing, where its target prints nothing.

    Args:
        records: where logs are.
        launch: the launch.
        attempt: its number; None: the last one.
        now: the present instant.

    Raises:
        NotFoundError: the launch had no such attempt.
    """
    last = _last_attempt(launch)
    number = last if attempt is None else attempt
    if number > last:
        raise NotFoundError(
            f"The launch has no attempt {number}; the last one is {last}."
            if last
            else "The launch has had no attempt yet."
        )
    found = records.log(launch, number) if number else None
    ended = found is not None and found.ended
    live = not ended and _may_print(
        launch, number, None if found is None else found.updated_at, now
    )
    if found is None:
        return RunLog(number, "", 0, truncated=False, updated_at=None, live=live)
    return RunLog(number, found.body, found.size, found.size > LOG_BYTES, found.updated_at, live)


def _last_attempt(launch: LaunchRecord) -> int:
    """The last attempt that has started; 0: none has."""
    if launch.state in (State.HELD, State.DUE, State.QUEUED):
        return launch.attempt - 1
    return launch.attempt


def _may_print(
    launch: LaunchRecord, attempt: int, updated_at: datetime | None, now: datetime
) -> bool:
    if attempt == launch.attempt and launch.state is State.RUNNING:
        return True
    if attempt == launch.attempt and launch.finished_at is not None:
        return now < launch.finished_at + _LATE
    return updated_at is not None and now < updated_at + _LATE
