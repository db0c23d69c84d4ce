"""/v1/audit-log: who changed what, as pages or as a stream of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal

import orjson
from fastapi import Query, Request
from pydantic import Field, WithJsonSchema
from starlette.responses import Response, StreamingResponse

from tickrail.core.audit_actions import ACTIONS
from tickrail.core.definition import instant_text
from tickrail.core.documents import shown, text_problem
from tickrail.core.ports_audit import AuditFilter, AuditRecord, AuditRecords
from tickrail.core.records import Page, PageRequest
from tickrail.store.audit_reader import AuditTable
from tickrail_api.call import Administers, Answer, Call
from tickrail_api.openapi import answers, page
from tickrail_api.paging import (
    PageParameters,
    bad_parameter,
    keyset,
    listed,
    range_parameters,
    read_instant,
)
from tickrail_api.schemas.audit import AUDIT_ENTRY, AuditPage
from tickrail_api.threads import Later, Routes

router = Routes(tags=["audit"])
NDJSON = "application/x-ndjson"
_STREAMED = 1000
"""Entries that one transaction of a stream reads."""


class AuditList(PageParameters):
    """Which entries, in which order."""

    actor: str | None = Field(None, max_length=500, description="Who: `key:<id>` and the like.")
    action: Annotated[str, WithJsonSchema({"type": "string", "enum": sorted(ACTIONS)})] | None = (
        Field(None, description="What was done.")
    )
    subject: str | None = Field(None, max_length=500, description="`job:<id>` and the like.")
    request_id: str | None = Field(None, max_length=128)
    since: str | None = Field(None, max_length=64, alias="from", description="The first instant.")
    until: str | None = Field(None, max_length=64, alias="to", description="The end, not included.")
    sort: Literal["at", "-at"] = "-at"


_LINES: dict[str, Any] = {
    NDJSON: {
        "schema": {"type": "string", "description": "An entry (AuditEntry) in each line."},
        "examples": {"answer": {"value": orjson.dumps(AUDIT_ENTRY).decode() + "\n"}},
    }
}
_ANSWERS = answers(AuditPage, page(AUDIT_ENTRY))
_ANSWERS[200]["content"] |= _LINES


@router.get("/v1/audit-log", responses=_ANSWERS)
def list_audit_log(
    call: Administers, request: Request, query: Annotated[AuditList, Query()]
) -> Response:
    """List who changed what, the newest first. Scope: admin.

    A tenant sees its own entries, an operator those of the installation, or of the tenant that it
    names. With `Accept: application/x-ndjson` all entries of the filter come as lines of JSON, each
    once; `limit` then means nothing. An entry bears the instant at which its change began and is
    there when that has ended, some seconds later at most: who exports in turns ends each at `to`,
    a minute ago, and begins the next there.
    """
    where = _filter(query)
    asked = [where.actor, where.action, where.subject, where.request_id, where.since, where.until]
    scope = ["audit", call.for_tenant, *asked, query.sort]
    first = keyset(query, query.sort, scope, read_instant)
    if NDJSON in request.headers.get("accept", ""):
        lines = _stream(call, where, replace(first, limit=_STREAMED))
        # The first page is read before the answer begins: its errors have a status of their own.
        begin = next(lines)
        return Later(StreamingResponse(_joined(begin, lines), media_type=NDJSON))
    with _entries(call) as entries:
        found = entries.page(where, first)
    after = found.after and query.next(scope, [found.after.value, found.after.id])
    return Answer(listed([audit_document(r) for r in found.items], after)).response()


@contextmanager
def _entries(call: Call) -> Iterator[AuditRecords]:
    """The entries that the caller may see; an operator's look at a tenant's is an entry itself."""
    if call.for_tenant:
        with call.read() as tx:
            yield AuditTable(tx.base)
    else:
        with call.parts.database.installation(operator=True) as base:
            yield AuditTable(base)


def _stream(call: Call, where: AuditFilter, first: PageRequest) -> Iterator[bytes]:
    """Every entry of the filter up to now, a bounded page at a time."""
    with _entries(call) as entries:
        until = entries.now if where.until is None else min(where.until, entries.now)
        where = replace(where, until=until)
        page: Page[AuditRecord] = entries.page(where, first)
    yield _lines(page.items)
    while page.after is not None:
        with _again(call) as entries:
            page = entries.page(where, replace(first, after=page.after))
        yield _lines(page.items)


@contextmanager
def _again(call: Call) -> Iterator[AuditRecords]:
    """As `_entries`, for the pages after the first: a stream is one look."""
    if call.for_tenant:
        with call.parts.database.tenant(call.tenant, call.caller) as tx:
            yield AuditTable(tx.base)
    else:
        with _entries(call) as entries:
            yield entries


def _joined(begin: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield begin
    yield from rest


def _lines(records: Sequence[AuditRecord]) -> bytes:
    return b"".join(orjson.dumps(audit_document(r)) + b"\n" for r in records)


def _filter(query: AuditList) -> AuditFilter:
    texts = {
        "actor": query.actor,
        "action": query.action,
        "subject": query.subject,
        "request_id": query.request_id,
    }
    for name, value in texts.items():
        wrong = None if value is None else text_problem(value) if value else "is empty"
        if wrong is not None:
            raise bad_parameter(name, wrong, "a whole value")
    if query.action is not None and query.action not in ACTIONS:
        right = f"one of {', '.join(sorted(ACTIONS))}"
        raise bad_parameter("action", f"is {shown(query.action)}", right)
    since, until = range_parameters(("from", query.since), ("to", query.until))
    return AuditFilter(**texts, since=since, until=until)


def audit_document(record: AuditRecord) -> dict[str, Any]:
    """An entry as the API answers it."""
    return {
        "id": str(record.id),
        "at": instant_text(record.at),
        "actor": record.actor,
        "action": record.action,
        "subject": record.subject,
        "before": record.before,
        "after": record.after,
        "request_id": record.request_id,
        "address": record.address,
    }
