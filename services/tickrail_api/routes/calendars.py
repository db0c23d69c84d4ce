"""/v1/calendars: named times that jobs leave out, or keep to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.ports_api import CalendarRecord, Transaction
from tickrail.engine.calendars import CalendarChange, MovedJob, require_calendar
from tickrail_api.call import Administers, Answer, Reads
from tickrail_api.openapi import answers, body, merge_patch, page, text_calendar
from tickrail_api.paging import PageParameters, Parameters, listed, name_after
from tickrail_api.query import no_parameters
from tickrail_api.schemas.calendar import (
    CALENDAR,
    ICALENDAR,
    ICALENDAR_TEXT,
    NEW_CALENDAR,
    PATCH_CALENDAR,
    PUT_CALENDAR,
    Calendar,
    CalendarBody,
    CalendarPage,
    NewCalendar,
    PutCalendar,
)
from tickrail_api.threads import Routes

router = Routes(tags=["calendars"])
plain = [Depends(no_parameters)]
_SCOPE = ["calendars"]


class PutParameters(Parameters):
    """How to put a calendar."""

    dry_run: bool = Field(False, description="Answer what would change, and change nothing.")


@router.get("/v1/calendars", responses=answers(CalendarPage, page(CALENDAR)))
def list_calendars(call: Reads, query: Annotated[PageParameters, Query()]) -> Response:
    """List calendars by name. Scope: read."""
    after = name_after(query, _SCOPE)
    with call.read() as tx:
        rows = tx.calendars.page(after, query.limit + 1)
    items = rows[: query.limit]
    more = query.next(_SCOPE, [items[-1].name]) if len(rows) > query.limit else None
    return Answer(listed([calendar_answer(r) for r in items], more)).response()


@router.get("/v1/calendars/{name}", dependencies=plain, responses=answers(Calendar, CALENDAR))
def get_calendar(call: Reads, name: str) -> Response:
    """Read a calendar. Scope: read."""
    with call.read() as tx:
        found = require_calendar(tx, name)
    return Answer(calendar_answer(found), headers=_etag(found)).response()


@router.put(
    "/v1/calendars/{name}",
    responses=answers(PutCalendar, PUT_CALENDAR, 200, 201),
    openapi_extra=text_calendar(body(NewCalendar, NEW_CALENDAR, ICALENDAR), ICALENDAR_TEXT),
)
def put_calendar(
    call: Administers, name: str, query: Annotated[PutParameters, Query()]
) -> Response:
    """Create or replace a calendar. Scope: admin.

    The same document again changes nothing. A change moves the next runs of the jobs that use the
    calendar at once, and the answer says which. An iCalendar file is sent as `text/calendar`, or as
    the member `icalendar` of a document. With `dry_run`, in the query or in the document, the
    answer is the same with status 200, and nothing is changed.
    """
    wanted = call.precondition()
    draft = call.parts.calendars.draft(name, call.calendar_document(), dry_run=query.dry_run)

    def effect(tx: Transaction) -> Answer:
        change = call.parts.calendars.put(tx, draft, wanted)
        document = calendar_answer(change.record) | {"moved": _moved(change)}
        if draft.dry_run:
            return Answer(document)
        headers = _etag(change.record)
        if change.created:
            headers["Location"] = f"/v1/calendars/{change.record.name}"
        return Answer(document, 201 if change.created else 200, headers)

    return call.write(effect)


@router.patch(
    "/v1/calendars/{name}",
    responses=answers(PutCalendar, PUT_CALENDAR),
    openapi_extra=merge_patch(PATCH_CALENDAR, of="NewCalendar"),
)
def patch_calendar(
    call: Administers, name: str, query: Annotated[PutParameters, Query()]
) -> Response:
    """Change parts of a calendar: a JSON merge patch of its document. Scope: admin.

    Lists are replaced as a whole; the events of an `icalendar` are added. As for PUT, the answer
    says which runs move, and `dry_run` changes nothing.
    """
    wanted, document = call.precondition(), call.document()

    def effect(tx: Transaction) -> Answer:
        change, dry = call.parts.calendars.patch(tx, name, document, wanted, dry_run=query.dry_run)
        answer = calendar_answer(change.record) | {"moved": _moved(change)}
        return Answer(answer, headers={} if dry else _etag(change.record))

    return call.write(effect)


@router.delete("/v1/calendars/{name}", status_code=204, dependencies=plain)
def delete_calendar(call: Administers, name: str) -> Response:
    """Delete a calendar; 409 with their names while jobs use it. Scope: admin."""
    wanted = call.precondition()

    def effect(tx: Transaction) -> Answer:
        call.parts.calendars.delete(tx, name, wanted)
        return Answer(None, 204)

    return call.write(effect)


def calendar_answer(record: CalendarRecord) -> dict[str, Any]:
    """A calendar as the API answers it."""
    return {
        "name": record.name,
        "version": record.version,
        **{name: record.document[name] for name in CalendarBody.model_fields},
        "created_at": instant_text(record.created_at),
        "updated_at": instant_text(record.updated_at),
    }


def _moved(change: CalendarChange) -> dict[str, Any]:
    return {"jobs": change.moved.count, "items": [_moved_job(m) for m in change.moved.listed]}


def _moved_job(moved: MovedJob) -> dict[str, Any]:
    job = moved.job
    return {
        "job": {"id": str(job.id), "name": job.name},
        "state": job.state.value,
        "next_run_at": {
            "before": instant_text(moved.before),
            "after": instant_text(job.next_run_at),
        },
        "added": [instant_text(at) for at in moved.changes.added],
        "removed": [instant_text(at) for at in moved.changes.removed],
    }


def _etag(record: CalendarRecord) -> dict[str, str]:
    return {"ETag": f'"{record.version}"'}
