"""`client.backfills`, `client.operations` and `client.dead_letters`."""

from __future__ import annotations

from typing import Unpack

from tickrail.sdk.client import documents, models
from tickrail.sdk.client.flow import Flow
from tickrail.sdk.client.operation import (
    Ask,
    Resource,
    S_co,
    asked,
    composed,
    listing,
    operation,
    polled,
)

_RUNNING = "running"


class Backfills(Resource[S_co]):
    """Backfills; `client.jobs.backfill()` begins one."""

    @operation("GET", "/v1/backfills/{backfill}")
    def get(self, backfill: str) -> Ask[models.Backfill]:
        """Read a backfill: how far it is, and how its launches stand."""
        return asked(models.Backfill.read, {"backfill": backfill})

    @operation("POST", "/v1/backfills/{backfill}/cancel")
    def cancel(
        self,
        backfill: str,
        *,
        in_flight: documents.InFlight = "finish",
        idempotency_key: str | None = None,
    ) -> Ask[models.Backfill]:
        """Cancel a backfill: what has not started is cancelled, what runs finishes."""
        return asked(
            models.Backfill.read,
            {"backfill": backfill},
            body={"in_flight": in_flight},
            idempotency_key=idempotency_key,
        )

    @composed
    def wait(
        self, backfill: str, *, every: float = 1.0, within: float | None = None
    ) -> Flow[models.Backfill]:
        """Wait until a backfill has ended, and read it; look at its `launches`.

        Args:
            backfill: its id.
            every: seconds between two looks.
            within: seconds to wait at most; None: as long as it takes.

        Raises:
            TimeoutError: it had not ended in time.
        """
        wanted = Backfills.get.ask(self, backfill)
        return polled(self.sender, wanted, lambda found: found.state != _RUNNING, every, within)


class Operations(Resource[S_co]):
    """Work on many jobs or dead letters."""

    @operation("GET", "/v1/operations/{operation}")
    def get(self, operation: str) -> Ask[models.Operation]:
        """Read an operation: how far it is."""
        return asked(models.Operation.read, {"operation": operation})

    @listing("/v1/operations")
    def list(self, **query: Unpack[documents.PageQuery]) -> Ask[models.Operation]:
        """The operations, the newest first."""
        return asked(models.Operation.read, query=query)

    @operation("POST", "/v1/operations/{operation}/cancel")
    def cancel(
        self, operation: str, *, idempotency_key: str | None = None
    ) -> Ask[models.Operation]:
        """Cancel an operation: nothing further is touched, what was done stays."""
        return asked(
            models.Operation.read, {"operation": operation}, idempotency_key=idempotency_key
        )

    @composed
    def wait(
        self, operation: str, *, every: float = 0.5, within: float | None = None
    ) -> Flow[models.Operation]:
        """Wait until an operation has ended, and read it; look at its `state` and `errors`.

        Args:
            operation: its id.
            every: seconds between two looks.
            within: seconds to wait at most; None: as long as it takes.

        Raises:
            TimeoutError: it had not ended in time.
        """
        wanted = Operations.get.ask(self, operation)
        return polled(self.sender, wanted, lambda found: found.state != _RUNNING, every, within)


class DeadLetters(Resource[S_co]):
    """Launches that were given up, and messages that no worker could read."""

    @operation("GET", "/v1/dead-letters/{launch}")
    def get(self, launch: str) -> Ask[models.InspectedLaunch]:
        """Inspect a dead letter: attempts, last response, target and payload."""
        return asked(models.InspectedLaunch.read, {"launch": launch})

    @operation("GET", "/v1/dead-letters/{topic}/{partition}/{offset}")
    def get_message(self, topic: str, partition: int, offset: int) -> Ask[models.InspectedMessage]:
        """Inspect an undecodable message; for operators."""
        parts = {"topic": topic, "partition": str(partition), "offset": str(offset)}
        return asked(models.InspectedMessage.read, parts)

    @listing("/v1/dead-letters")
    def list(self, **query: Unpack[documents.LetterQuery]) -> Ask[models.DeadLetter]:
        """The dead letters, the last to die first: `DeadLaunch` or `UndecodableMessage`."""
        return asked(models.DeadLetter.read, query=query)

    @operation("POST", "/v1/dead-letters/redrive")
    def redrive(
        self, *, idempotency_key: str | None = None, **what: Unpack[documents.RedriveMany]
    ) -> Ask[models.Operation]:
        """Redrive all dead letters of a filter; `client.operations.wait()` waits for it."""
        return asked(models.Operation.read, body=what, idempotency_key=idempotency_key)

    @operation("POST", "/v1/dead-letters/redrive")
    def preview_redrive(self, **what: Unpack[documents.RedriveMany]) -> Ask[models.LetterPreview]:
        """Which dead letters `redrive` would be about; nothing is changed."""
        return asked(models.LetterPreview.read, body={**what, "dry_run": True})

    @operation("POST", "/v1/dead-letters/purge")
    def purge(
        self, *, idempotency_key: str | None = None, **what: Unpack[documents.PurgeMany]
    ) -> Ask[models.Operation]:
        """Let all dead letters of a filter show no more; the launches stay dead."""
        return asked(models.Operation.read, body=what, idempotency_key=idempotency_key)

    @operation("POST", "/v1/dead-letters/purge")
    def preview_purge(self, **what: Unpack[documents.PurgeMany]) -> Ask[models.PurgeAnswer]:
        """Which dead letters `purge` would be about; nothing is changed."""
        return asked(models.PurgeAnswer.read, body={**what, "dry_run": True})

    @operation("POST", "/v1/dead-letters/purge")
    def purge_messages(
        self, *, dry_run: bool = False, **what: Unpack[documents.PurgeMessages]
    ) -> Ask[models.PurgeAnswer]:
        """Delete the undecodable messages of a filter, at once; for operators."""
        return asked(models.PurgeAnswer.read, body={**what, "dry_run": dry_run})
