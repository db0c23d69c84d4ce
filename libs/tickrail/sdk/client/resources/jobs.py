"""`client.jobs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from tickrail.sdk.client import documents, models
from tickrail.sdk.client.operation import (
    Ask,
    Resource,
    S_co,
    asked,
    listing,
    nothing,
    operation,
)


class Jobs(Resource[S_co]):
    """Jobs. `job` is an id, or `name:<name>` of a live job."""

    @operation("POST", "/v1/jobs")
    def create(
        self, *, idempotency_key: str | None = None, **job: Unpack[documents.NewJob]
    ) -> Ask[models.JobAnswer]:
        """Create a job."""
        return asked(models.JobAnswer.read, body=job, idempotency_key=idempotency_key)

    @operation("POST", "/v1/jobs/batch")
    def batch(
        self,
        jobs: Iterable[documents.NewJob],
        *,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> Ask[models.JobResults]:
        """Create up to 1,000 jobs; each has a result of its own, in the order given.

        With `dry_run` none is made: of each that is right the status is 200.
        """
        body = {"jobs": list(jobs), "dry_run": dry_run}
        return asked(models.JobResults.read, body=body, idempotency_key=idempotency_key)

    @operation("GET", "/v1/jobs/{job}")
    def get(self, job: str) -> Ask[models.JobAnswer]:
        """Read a job."""
        return asked(models.JobAnswer.read, {"job": job})

    @listing("/v1/jobs")
    def list(self, **query: Unpack[documents.JobQuery]) -> Ask[models.Job]:
        """The jobs, the newest first unless sorted otherwise; not those that are deleted."""
        return asked(models.Job.read, query=query)

    @operation("PUT", "/v1/jobs/{job}")
    def put(
        self,
        job: str,
        *,
        if_match: int | None = None,
        create_only: bool = False,
        dry_run: bool = False,
        **document: Unpack[documents.NewJob],
    ) -> Ask[models.JobAnswer]:
        """Replace a job, or create it where `name:<name>` is new.

        The same document again changes nothing. With `dry_run` nothing is changed: the answer is
        the job as it would be, or the error that there would be.
        """
        return asked(
            models.JobAnswer.read,
            {"job": job},
            query={"dry_run": dry_run or None},
            body=document,
            if_match=if_match,
            create_only=create_only,
        )

    @operation("PATCH", "/v1/jobs/{job}")
    def patch(
        self, job: str, *, if_match: int | None = None, **changes: Unpack[documents.JobChanges]
    ) -> Ask[models.JobAnswer]:
        """Change parts of a job: a JSON merge patch, in which None takes a member away."""
        return asked(models.JobAnswer.read, {"job": job}, body=changes, if_match=if_match)

    @operation("DELETE", "/v1/jobs/{job}")
    def delete(self, job: str, *, if_match: int | None = None) -> Ask[None]:
        """Delete a job; it can be read and taken back for 30 days by its id."""
        return asked(nothing, {"job": job}, if_match=if_match)

    @operation("POST", "/v1/jobs/{job}/undelete")
    def undelete(
        self, job: str, *, if_match: int | None = None, idempotency_key: str | None = None
    ) -> Ask[models.JobAnswer]:
        """Take back a job that was deleted within 30 days; it goes on from now.

        `name:<name>` is the job of that name which was deleted last.
        """
        return asked(
            models.JobAnswer.read, {"job": job}, if_match=if_match, idempotency_key=idempotency_key
        )

    @listing("/v1/jobs/{job}/versions")
    def versions(self, job: str, **query: Unpack[documents.PageQuery]) -> Ask[models.JobVersion]:
        """Every saved definition of a job, the newest first."""
        return asked(models.JobVersion.read, {"job": job}, query=query)

    @operation("GET", "/v1/jobs/{job}/versions/{version}")
    def version(self, job: str, version: int) -> Ask[models.JobVersion]:
        """One saved definition of a job."""
        return asked(models.JobVersion.read, {"job": job, "version": str(version)})

    @operation("POST", "/v1/jobs/{job}/versions/{version}/restore")
    def restore(
        self,
        job: str,
        version: int,
        *,
        if_match: int | None = None,
        idempotency_key: str | None = None,
    ) -> Ask[models.JobAnswer]:
        """Give a job the definition of one of its versions, as a new version."""
        return asked(
            models.JobAnswer.read,
            {"job": job, "version": str(version)},
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/jobs/{job}/pause")
    def pause(
        self,
        job: str,
        *,
        if_match: int | None = None,
        idempotency_key: str | None = None,
        **how: Unpack[documents.Pause],
    ) -> Ask[models.Job]:
        """Pause a job, perhaps until an instant."""
        return asked(
            models.Job.read,
            {"job": job},
            body=how,
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/jobs/{job}/resume")
    def resume(
        self,
        job: str,
        *,
        if_match: int | None = None,
        idempotency_key: str | None = None,
        **how: Unpack[documents.Resume],
    ) -> Ask[models.Job]:
        """Let a paused job go on."""
        return asked(
            models.Job.read,
            {"job": job},
            body=how,
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/jobs/pause")
    def pause_many(
        self, *, idempotency_key: str | None = None, **how: Unpack[documents.PauseMany]
    ) -> Ask[models.Operation]:
        """Pause all jobs of a filter; `client.operations.wait()` waits for it."""
        return asked(models.Operation.read, body=how, idempotency_key=idempotency_key)

    @operation("POST", "/v1/jobs/pause")
    def preview_pause_many(
        self, **how: Unpack[documents.PauseMany]
    ) -> Ask[models.OperationPreview]:
        """Which jobs `pause_many` would be about; nothing is changed."""
        return asked(models.OperationPreview.read, body={**how, "dry_run": True})

    @operation("POST", "/v1/jobs/resume")
    def resume_many(
        self, *, idempotency_key: str | None = None, **how: Unpack[documents.ResumeMany]
    ) -> Ask[models.Operation]:
        """Let all jobs of a filter go on; `client.operations.wait()` waits for it."""
        return asked(models.Operation.read, body=how, idempotency_key=idempotency_key)

    @operation("POST", "/v1/jobs/resume")
    def preview_resume_many(
        self, **how: Unpack[documents.ResumeMany]
    ) -> Ask[models.OperationPreview]:
        """Which jobs `resume_many` would be about; nothing is changed."""
        return asked(models.OperationPreview.read, body={**how, "dry_run": True})

    @operation("POST", "/v1/jobs/{job}/trigger")
    def trigger(
        self,
        job: str,
        *,
        if_match: int | None = None,
        idempotency_key: str | None = None,
        **what: Unpack[documents.Trigger],
    ) -> Ask[models.Launch]:
        """Launch a job now; obeys its overlap policy, ignores a pause."""
        return asked(
            models.Launch.read,
            {"job": job},
            body=what,
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/jobs/{job}/skip-next")
    def skip_next(
        self,
        job: str,
        n: int = 1,
        *,
        if_match: int | None = None,
        idempotency_key: str | None = None,
    ) -> Ask[models.Job]:
        """Leave out the next n slots; 0 takes back what was said before."""
        return asked(
            models.Job.read,
            {"job": job},
            body={"n": n},
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    @operation("GET", "/v1/jobs/{job}/upcoming")
    def upcoming(
        self, job: str, **query: Unpack[documents.UpcomingQuery]
    ) -> Ask[tuple[models.UpcomingSlot, ...]]:
        """The next slots of a job, as its schedule has them."""
        return asked(models.Upcoming.items_of, {"job": job}, query=query)

    @listing("/v1/jobs/{job}/slots")
    def slots(self, job: str, **query: Unpack[documents.SlotQuery]) -> Ask[models.LedgerSlot]:
        """The ledger: each slot, launched, skipped and why, or upcoming; the last one first."""
        return asked(models.LedgerSlot.read, {"job": job}, query=query)

    @operation("POST", "/v1/jobs/{job}/backfills")
    def backfill(
        self,
        job: str,
        *,
        if_match: int | None = None,
        idempotency_key: str | None = None,
        **what: Unpack[documents.NewBackfill],
    ) -> Ask[models.Backfill]:
        """Launch the slots of a past range; `client.backfills.wait()` waits for it."""
        return asked(
            models.Backfill.read,
            {"job": job},
            body=what,
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/jobs/{job}/backfills")
    def preview_backfill(
        self, job: str, **what: Unpack[documents.NewBackfill]
    ) -> Ask[models.BackfillPreview]:
        """What `backfill` would do; nothing is saved."""
        return asked(models.BackfillPreview.read, {"job": job}, body={**what, "dry_run": True})

    @listing("/v1/jobs/{job}/backfills")
    def backfills(self, job: str, **query: Unpack[documents.PageQuery]) -> Ask[models.Backfill]:
        """The backfills of a job, the newest first."""
        return asked(models.Backfill.read, {"job": job}, query=query)
