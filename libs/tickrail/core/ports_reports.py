"""What a worker tells of itself and of its runs while they go on: the port behind it.

Nothing here decides anything: claims and their ends are in `core.ports_worker`. What is lost of
this is missing from a screen. Each method is one transaction; `UnavailableError` says that nothing
is known of the call's effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from tickrail.core.ids import Claim, LaunchId, TenantId


class RunReport(NamedTuple):
    """What a run has told since the last report.

    `body` is the end of all that it printed, None: nothing new; `size` how many bytes that was in
    all; `ended`: it will print no more. `progress` is the JSON text of how far it is, None: nothing
    new.
    """

    id: LaunchId
    scheduled_at: datetime
    tenant: TenantId
    attempt: int
    claim: Claim
    body: str | None
    size: int
    ended: bool
    progress: str | None


class WorkerInfo(NamedTuple):
    """A worker that is there. `id` names this start of it, `name` is what operators call it."""

    id: str
    name: str
    queues: Sequence[str]
    kinds: Sequence[str]
    tasks: Sequence[str]
    version: str
    concurrency: int
    running: int
    draining: bool


class ReportStore(Protocol):
    """Where workers report. Safe to use from several threads."""

    def write_runs(self, reports: Sequence[RunReport]) -> None:
        """Keep what runs have told.

        Output is kept by attempt; progress is the launch's while it has the run's claim. A launch
        whose day is dropped already is passed over.
        """
        ...

    def present(self, worker: WorkerInfo, forget_after: timedelta) -> None:
        """A worker is there; those not heard of for `forget_after` are forgotten."""
        ...

    def left(self, worker: str) -> None:
        """The worker with this id is gone."""
        ...
