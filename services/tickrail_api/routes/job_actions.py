"""/v1/jobs/{job}/...: pause, resume, trigger, upcoming, slots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.ports_api import Transaction
from tickrail.engine.job_rules import plan_of, require
from tickrail.engine.ledger import Kind, LedgerRequest, job_slots, slots
from tickrail_api.call import Answer, Reads, Runs, Writes
from tickrail_api.openapi import answers, body, page
from tickrail_api.paging import (
    PageParameters,
    Parameters,
    bad_parameter,
    instant_parameter,
    listed,
    read_instant,
)
from tickrail_api.routes.jobs import path_ref, plain
from tickrail_api.schemas.job import (
    JOB,
    PAUSE,
    RESUME,
    SKIP_NEXT,
    TRIGGER,
    Job,
    Pause,
    Resume,
    SkipNext,
    Trigger,
)
from tickrail_api.schemas.launch import LAUNCH, SLOT, Launch, Ledger
from tickrail_api.schemas.other import SLOT as UPCOMING_SLOT
from tickrail_api.schemas.other import Upcoming
from tickrail_api.threads import Routes
from tickrail_api.views import etag, job_document, launch_document, ledger_document, slot_document

router = Routes(tags=["jobs"])


class UpcomingQuery(Parameters):
    """Which slots to come."""

    n: int = Field(10, ge=1, le=500, description="How many.")
    after: str | None = Field(None, max_length=64, description="From when on; now.")


class LedgerQuery(PageParameters):
    """Which slots, in which order."""

    since: str | None = Field(None, max_length=64, alias="from", description="The first instant.")
    until: str | None = Field(
        None, max_length=64, alias="to", description="The end, not included. Without: ten to come."
    )
    sort: Literal["at", "-at"] = "-at"


@router.post(
    "/v1/jobs/{job}/pause",
    dependencies=plain,
    responses=answers(Job, JOB),
    openapi_extra=body(Pause, PAUSE, required=False),
)
def pause_job(call: Writes, job: str) -> Response:
    """Pause a job, perhaps until an instant. Scope: write."""
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found = call.parts.pauses.pause(tx, ref, document, wanted)
        return Answer(job_document(found), headers=etag(found))

    return call.write(effect)


@router.post(
    "/v1/jobs/{job}/resume",
    dependencies=plain,
    responses=answers(Job, JOB),
    openapi_extra=body(Resume, RESUME, required=False),
)
def resume_job(call: Writes, job: str) -> Response:
    """Let a paused job go on. Scope: write."""
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found = call.parts.pauses.resume(tx, ref, document, wanted)
        return Answer(job_document(found), headers=etag(found))

    return call.write(effect)


@router.post(
    "/v1/jobs/{job}/skip-next",
    dependencies=plain,
    responses=answers(Job, JOB),
    openapi_extra=body(SkipNext, SKIP_NEXT),
)
def skip_next(call: Writes, job: str) -> Response:
    """Leave out the next n slots of a job, in place of what was said before. Scope: write."""
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found = call.parts.pauses.skip_next(tx, ref, document, wanted)
        return Answer(job_document(found), headers=etag(found))

    return call.write(effect)


@router.post(
    "/v1/jobs/{job}/trigger",
    status_code=201,
    dependencies=plain,
    responses=answers(Launch, LAUNCH, 201),
    openapi_extra=body(Trigger, TRIGGER, required=False),
)
def trigger_job(call: Runs, job: str) -> Response:
    """Launch a job now; obeys its overlap policy, ignores a pause. Scope: run."""
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        launch = call.parts.launches.trigger(tx, ref, document, wanted)
        return Answer(launch_document(launch), 201, {"Location": f"/v1/launches/{launch.id}"})

    return call.write(effect)


@router.get("/v1/jobs/{job}/upcoming", responses=answers(Upcoming, {"items": [UPCOMING_SLOT]}))
def upcoming(call: Reads, job: str, query: Annotated[UpcomingQuery, Query()]) -> Response:
    """The next slots of a job, as its schedule has them. Scope: read."""
    after = instant_parameter("after", query.after)
    with call.read() as tx:
        found = require(tx, path_ref(job))
        now, plan = tx.now, plan_of(tx, found)
    items = [slot_document(s) for s in job_slots(plan, found, after or now, query.n)]
    return Answer({"items": items}).response()


@router.get("/v1/jobs/{job}/slots", responses=answers(Ledger, page(SLOT)))
def ledger(call: Reads, job: str, query: Annotated[LedgerQuery, Query()]) -> Response:
    """The ledger: one row for each due slot: launched, skipped and why, upcoming. Scope: read."""
    since = instant_parameter("from", query.since)
    until = instant_parameter("to", query.until)
    if since is not None and until is not None and until < since:
        raise bad_parameter("to", "is before from", "the same instant or a later one")
    scope = ["slots", job, since, until, query.sort]
    with call.read() as tx:
        found = require(tx, path_ref(job))
        request = LedgerRequest(
            since, until, query.sort == "at", query.limit, _position(query, scope)
        )
        rows, more = slots(tx, found, request)
    after = query.next(scope, list(rows[-1].key)) if more else None
    return Answer(listed([ledger_document(r) for r in rows], after)).response()


def _position(query: LedgerQuery, scope: Sequence[object]) -> tuple[datetime, int] | None:
    found = query.position(scope, 2)
    if found is None:
        return None
    try:
        return read_instant(str(found[0])), int(Kind(found[1]))
    except ValueError:
        raise bad_parameter("cursor", "is not one of this list", "next_cursor") from None
