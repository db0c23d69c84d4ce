"""/v1/jobs/{job}/backfills, /v1/backfills/{backfill}: launch slots of the past."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from tickrail.core.backfill import BackfillState
from tickrail.core.definition import instant_text
from tickrail.core.ports_api import Transaction
from tickrail.core.ports_backfill import BackfillRecord
from tickrail.engine.backfill_requests import BackfillPreview, find_backfill
from tickrail.engine.job_rules import require
from tickrail_api.call import Answer, Reads, Writes
from tickrail_api.openapi import answers, body, page
from tickrail_api.paging import PageParameters, bad_parameter, listed, path_id, uuid_of
from tickrail_api.routes.jobs import path_ref, plain
from tickrail_api.schemas.backfill import (
    BACKFILL,
    BACKFILL_PREVIEW,
    CANCEL_BACKFILL,
    DRY_BACKFILL,
    NEW_BACKFILL,
    Backfill,
    BackfillPage,
    CancelBackfill,
    NewBackfill,
)
from tickrail_api.schemas.backfill import BackfillPreview as PreviewDocument
from tickrail_api.threads import Routes

router = Routes(tags=["backfills"])


def backfill_document(record: BackfillRecord) -> dict[str, Any]:
    """A backfill."""
    b = record.backfill
    return {
        "id": str(b.id),
        "job": {"id": str(record.job), "name": record.job_name},
        "state": record.state.value,
        "from": instant_text(b.from_at),
        "until": instant_text(b.until_at),
        "order": b.order.value,
        "existing": b.existing.value,
        "per_minute": b.per_minute,
        "max_count": b.max_count,
        "max_open": b.max_open,
        "reason": record.reason,
        "total": b.total,
        "launched": b.launched,
        "left_alone": b.left_alone,
        "remaining": b.remaining if record.state is BackfillState.RUNNING else 0,
        "launches": dict(record.launches),
        "created_by": record.created_by,
        "created_at": instant_text(record.created_at),
        "updated_at": instant_text(record.updated_at),
        "finished_at": instant_text(record.finished_at),
    }


def preview_document(preview: BackfillPreview) -> dict[str, Any]:
    """What a backfill would do."""
    return {
        "job": {"id": str(preview.job.id), "name": preview.job.name},
        "total": preview.backfill.total,
        "to_launch": preview.to_launch,
        "first": instant_text(preview.first),
        "last": instant_text(preview.last),
        "items": [
            {
                "at": instant_text(slot.at),
                "launch": None
                if slot.launch is None
                else {"id": str(slot.launch[0]), "state": slot.launch[1]},
            }
            for slot in preview.items
        ],
    }


@router.post(
    "/v1/jobs/{job}/backfills",
    status_code=202,
    dependencies=plain,
    responses={**answers(Backfill, BACKFILL, 202), **answers(PreviewDocument, BACKFILL_PREVIEW)},
    openapi_extra=body(NewBackfill, NEW_BACKFILL, DRY_BACKFILL),
)
def backfill_job(call: Writes, job: str) -> Response:
    """Launch the slots of a past range; with `dry_run` only say which. Scope: write.

    Slots are those of the job's present schedule, calendars and all, between its starts_at and
    ends_at; its max_launches does not count them. Launches have low priority.
    """
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        made = call.parts.backfills.request(tx, ref, document, wanted)
        if isinstance(made, BackfillPreview):
            return Answer(preview_document(made))
        location = {"Location": f"/v1/backfills/{made.backfill.id}"}
        return Answer(backfill_document(made), 202, location)

    return call.write(effect)


@router.get("/v1/jobs/{job}/backfills", responses=answers(BackfillPage, page(BACKFILL)))
def list_backfills(call: Reads, job: str, query: Annotated[PageParameters, Query()]) -> Response:
    """The backfills of a job, the newest first. Scope: read."""
    scope = ["backfills", job.lower()]
    found = query.position(scope, 1)
    try:
        after = None if found is None else uuid_of(str(found[0]))
    except ValueError:
        raise bad_parameter("cursor", "is not one of this list", "next_cursor") from None
    with call.read() as tx:
        rows = tx.backfills.page(require(tx, path_ref(job)).id, after, query.limit + 1)
    items = rows[: query.limit]
    more = query.next(scope, [str(items[-1].backfill.id)]) if len(rows) > len(items) else None
    return Answer(listed([backfill_document(r) for r in items], more)).response()


@router.get("/v1/backfills/{backfill}", dependencies=plain, responses=answers(Backfill, BACKFILL))
def get_backfill(call: Reads, backfill: str) -> Response:
    """Read a backfill: how far it is, and how its launches stand. Scope: read."""
    wanted = path_id("backfill", backfill)
    with call.read() as tx:
        found = find_backfill(tx, wanted)
    return Answer(backfill_document(found)).response()


@router.post(
    "/v1/backfills/{backfill}/cancel",
    status_code=202,
    dependencies=plain,
    responses=answers(Backfill, BACKFILL, 202),
    openapi_extra=body(CancelBackfill, CANCEL_BACKFILL, required=False),
)
def cancel_backfill(call: Writes, backfill: str) -> Response:
    """Cancel a backfill: what has not started is cancelled, what runs finishes. Scope: write."""
    wanted, document = path_id("backfill", backfill), call.document()

    def effect(tx: Transaction) -> Answer:
        return Answer(backfill_document(call.parts.backfills.cancel(tx, wanted, document)), 202)

    return call.write(effect)
