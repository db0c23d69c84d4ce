"""/v1/schedules/preview: what a schedule means, saved or not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from starlette.responses import Response

from tickrail.core.definition import Plan, instant_text, read_calendars
from tickrail.core.documents import Reader
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.ids import JobId
from tickrail.core.lint import lint, no_run
from tickrail.core.ports_api import JobRecord, Transaction
from tickrail.core.schedule import parse_schedule, schedule_document
from tickrail.core.words import plan_words
from tickrail.engine.hints import crowd_hints
from tickrail.engine.job_rules import plan_of, require, resolve
from tickrail.engine.ledger import first_slots, shown_slots
from tickrail_api.call import Answer, Reads
from tickrail_api.openapi import answers, body
from tickrail_api.paging import job_ref
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.other import PREVIEW, PREVIEW_REQUEST, Preview, PreviewRequest
from tickrail_api.threads import Routes
from tickrail_api.views import lint_document, slot_document

router = Routes(tags=["schedules"])


@router.post(
    "/v1/schedules/preview",
    dependencies=plain,
    responses=answers(Preview, PREVIEW),
    openapi_extra=body(PreviewRequest, PREVIEW_REQUEST),
)
def preview(call: Reads) -> Response:
    """The next slots of a schedule, in words, with warnings and what differs from a job's.

    Scope: read. Nothing is saved.
    """
    document = call.document()
    return call.write(lambda tx: _preview(tx, document))


def _preview(tx: Transaction, document: object) -> Answer:
    reader = Reader(document)
    after = reader.instant("after") or tx.now
    n = reader.whole("n", 10, low=1, high=500)
    ref = reader.text("job", maximum=140)
    job = None if ref is None else _job(tx, ref)
    plan = _plan(tx, reader, job)
    found = first_slots(plan, after, n)
    warnings = lint(plan.schedule, tx.now)
    warnings += crowd_hints(tx, found[0] if found else None, warnings)
    if plan.schedule is not None and not found:
        warnings.append(no_run(after, plan.ends_at))
    schedule = plan.schedule
    return Answer(
        {
            "items": [slot_document(s) for s in shown_slots(plan, after, n)],
            "words": plan_words(plan),
            "schedule": None if schedule is None else schedule_document(schedule),
            "lint": [lint_document(w) for w in warnings],
            "difference": None if job is None else _difference(tx, job, found, after, n),
        }
    )


def _plan(tx: Transaction, reader: Reader, job: JobRecord | None) -> Plan:
    """What is to be looked at; the job's own schedule where a job is named and no schedule."""
    starts_at, ends_at = reader.instant("starts_at"), reader.instant("ends_at")
    if starts_at and ends_at and ends_at <= starts_at:
        reader.problem("ends_at", "is not after starts_at", "a later instant")
    given = reader.raw("schedule")
    key: JobId | None = None if job is None else job.id
    schedule = reader.parse(lambda: parse_schedule(given, job=key, now=tx.now, stored=True))
    calendars = read_calendars(reader)
    reader.finish("preview")
    if job is None or reader.names("schedule"):
        plan = Plan(schedule=schedule, starts_at=starts_at, ends_at=ends_at, calendars=calendars)
        return resolve(tx, plan)
    own = plan_of(tx, job)
    own = replace(own, starts_at=starts_at or own.starts_at, ends_at=ends_at or own.ends_at)
    return own if calendars is None else resolve(tx, replace(own, calendars=calendars))


def _difference(
    tx: Transaction, job: JobRecord, found: list[datetime], after: datetime, n: int
) -> dict[str, list[str | None]]:
    """Slots of one and not of the other, up to where both are known."""
    old = first_slots(plan_of(tx, job), after, n)
    ends = [slots[-1] for slots in (found, old) if len(slots) == n]
    edge = min(ends, default=None)
    new, before = ({s for s in slots if edge is None or s <= edge} for slots in (found, old))
    return {
        "added": [instant_text(s) for s in sorted(new - before)],
        "removed": [instant_text(s) for s in sorted(before - new)],
    }


def _job(tx: Transaction, text: str) -> JobRecord:
    try:
        ref = job_ref(text)
    except ValueError:
        problem = Problem("/job", f"is {text!r}", "an id, or name:<name>")
        raise InvalidInputError("The preview is not valid.", [problem]) from None
    return require(tx, ref)
