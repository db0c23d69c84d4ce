"""`client.launches`."""

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


class Launches(Resource[S_co]):
    """Launches: runs of jobs."""

    @operation("GET", "/v1/launches/{launch}")
    def get(self, launch: str) -> Ask[models.Launch]:
        """Read a launch."""
        return asked(models.Launch.read, {"launch": launch})

    @listing("/v1/launches")
    def list(self, **query: Unpack[documents.LaunchQuery]) -> Ask[models.Launch]:
        """The launches, the newest first unless sorted otherwise."""
        return asked(models.Launch.read, query=query)

    @listing("/v1/launches/{launch}/attempts")
    def attempts(self, launch: str, **query: Unpack[documents.PageQuery]) -> Ask[models.Attempt]:
        """The attempts of a launch, the first one first."""
        return asked(models.Attempt.read, {"launch": launch}, query=query)

    @operation("GET", "/v1/launches/{launch}/explain")
    def explain(self, launch: str) -> Ask[models.LaunchExplanation]:
        """Why a launch stands where it stands, or how it ended and why."""
        return asked(models.LaunchExplanation.read, {"launch": launch})

    @operation("GET", "/v1/launches/{launch}/log")
    def log(self, launch: str, attempt: int | None = None) -> Ask[models.Log]:
        """What an attempt has printed, also while it runs; of the last one unless named."""
        return asked(models.Log.read, {"launch": launch}, query={"attempt": attempt})

    @operation("POST", "/v1/launches/{launch}/cancel")
    def cancel(self, launch: str, *, idempotency_key: str | None = None) -> Ask[models.Launch]:
        """Cancel a launch; a running one is asked to stop."""
        return asked(models.Launch.read, {"launch": launch}, idempotency_key=idempotency_key)

    @operation("POST", "/v1/launches/{launch}/redrive")
    def redrive(
        self,
        launch: str,
        *,
        idempotency_key: str | None = None,
        **how: Unpack[documents.Redrive],
    ) -> Ask[models.Launch]:
        """Give a dead or abandoned launch another life."""
        return asked(
            models.Launch.read, {"launch": launch}, body=how, idempotency_key=idempotency_key
        )

    @composed
    def wait(
        self, launch: str, *, every: float = 1.0, within: float | None = None
    ) -> Flow[models.Launch]:
        """Wait until a launch has ended, and read it; look at its `state`.

        Args:
            launch: its id.
            every: seconds between two looks.
            within: seconds to wait at most; None: as long as it takes.

        Raises:
            TimeoutError: it had not ended in time.
        """
        wanted = Launches.get.ask(self, launch)
        return polled(self.sender, wanted, lambda found: found.ended, every, within)
