"""/v1/jobs/pause, /v1/jobs/resume and /v1/operations: the same done to many jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.ports_api import Transaction
from tickrail.core.ports_operations import OperationRecord
from tickrail.engine.operations import Kind, OperationPreview, find_operation
from tickrail_api.call import Answer, Asks, Call, Reads, Writes
from tickrail_api.openapi import answers, body, page
from tickrail_api.paging import PageParameters, bad_parameter, listed, path_id, uuid_of
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.operation import (
    DRY_MANY,
    OPERATION,
    OPERATION_PREVIEW,
    PAUSE_MANY,
    RESUME_MANY,
    Operation,
    OperationPage,
    PauseMany,
    ResumeMany,
)
from tickrail_api.schemas.operation import OperationPreview as PreviewDocument
from tickrail_api.threads import Routes

router = Routes(tags=["operations"])
_answers = {**answers(Operation, OPERATION, 202), **answers(PreviewDocument, OPERATION_PREVIEW)}


def operation_document(record: OperationRecord) -> dict[str, Any]:
    """An operation."""
    return {
        "id": str(record.id),
        "kind": record.kind,
        "state": record.state.value,
        "request": dict(record.request),
        "total": record.total,
        "done": record.done,
        "changed": record.changed,
        "failed": record.failed,
        "errors": [dict(e) for e in record.errors],
        "created_by": record.created_by,
        "created_at": instant_text(record.created_at),
        "updated_at": instant_text(record.updated_at),
        "finished_at": instant_text(record.finished_at),
    }


@router.post(
    "/v1/jobs/pause",
    status_code=202,
    dependencies=plain,
    responses=_answers,
    openapi_extra=body(PauseMany, PAUSE_MANY, DRY_MANY),
)
def pause_jobs(call: Writes) -> Response:
    """Pause all jobs of a filter; with `dry_run` only say which. Scope: write."""
    return _begin(call, Kind.PAUSE)


@router.post(
    "/v1/jobs/resume",
    status_code=202,
    dependencies=plain,
    responses=_answers,
    openapi_extra=body(ResumeMany, RESUME_MANY, DRY_MANY),
)
def resume_jobs(call: Writes) -> Response:
    """Let all jobs of a filter go on; with `dry_run` only say which. Scope: write."""
    return _begin(call, Kind.RESUME)


@router.get("/v1/operations", responses=answers(OperationPage, page(OPERATION)))
def list_operations(call: Reads, query: Annotated[PageParameters, Query()]) -> Response:
    """List operations, the newest first. Scope: read."""
    scope = ["operations"]
    found = query.position(scope, 1)
    try:
        after = None if found is None else uuid_of(str(found[0]))
    except ValueError:
        raise bad_parameter("cursor", "is not one of this list", "next_cursor") from None
    with call.read() as tx:
        rows = tx.operations.page(after, query.limit + 1)
    items = rows[: query.limit]
    more = query.next(scope, [str(items[-1].id)]) if len(rows) > len(items) else None
    return Answer(listed([operation_document(r) for r in items], more)).response()


@router.get(
    "/v1/operations/{operation}", dependencies=plain, responses=answers(Operation, OPERATION)
)
def get_operation(call: Reads, operation: str) -> Response:
    """Read an operation: how far it is. Scope: read."""
    wanted = path_id("operation", operation)
    with call.read() as tx:
        found = find_operation(tx, wanted)
    return Answer(operation_document(found)).response()


@router.post(
    "/v1/operations/{operation}/cancel",
    status_code=202,
    dependencies=plain,
    responses=answers(Operation, OPERATION, 202),
)
def cancel_operation(call: Asks, operation: str) -> Response:
    """Cancel an operation: nothing further is touched, what was done stays.

    Scope: write. For a redrive, run is enough: it needs no more to begin.
    """
    wanted = path_id("operation", operation)
    # A body has nothing to say here, but what is not JSON is refused as everywhere.
    call.document()

    if "write" not in call.principal.scopes:
        # Before `write`, which may answer what it answered before.
        with call.read() as tx:
            redrive = find_operation(tx, wanted).kind == Kind.REDRIVE
        if not redrive or "run" not in call.principal.scopes:
            call.principal.demand("write")

    def effect(tx: Transaction) -> Answer:
        return Answer(operation_document(call.parts.operations.cancel(tx, wanted)), 202)

    return call.write(effect)


def _begin(call: Call, kind: Kind) -> Response:
    document = call.document()

    def effect(tx: Transaction) -> Answer:
        made = call.parts.operations.request(tx, kind, document)
        if isinstance(made, OperationPreview):
            return Answer({"total": made.total, "names": list(made.names)})
        location = {"Location": f"/v1/operations/{made.id}"}
        return Answer(operation_document(made), 202, location)

    response = call.write(effect)
    call.parts.runner.wake()
    return response
