"""/v1/dead-letters and /v1/launches/{launch}/redrive: what was given up, and its next life."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.dead_letters import LetterFilter, Reason
from tickrail.core.definition import NAME
from tickrail.core.errors import ForbiddenError, NotFoundError
from tickrail.core.ids import LaunchId
from tickrail.core.ports_api import Transaction
from tickrail.core.records import PageRequest
from tickrail.core.states import State
from tickrail.engine.launches import require_launch
from tickrail.engine.operations import Kind, OperationPreview
from tickrail.store.letters import MessageFilter, list_undecodable
from tickrail_api.call import Answer, Call, Reads, Runs, Writes
from tickrail_api.letter_views import (
    UNDECODABLE,
    inspected_launch,
    letter_document,
    message_document,
)
from tickrail_api.openapi import answers, body, page
from tickrail_api.paging import (
    PageParameters,
    bad_parameter,
    instant_parameter,
    keyset,
    listed,
    path_id,
    read_instant,
    tag_parameters,
)
from tickrail_api.routes.jobs import plain
from tickrail_api.routes.launches import job_parameter
from tickrail_api.routes.operations import operation_document
from tickrail_api.routes.undecodable import purge_messages
from tickrail_api.schemas.dead_letter import (
    DEAD_LAUNCH,
    DRY_LETTERS,
    INSPECTED,
    LETTER_PREVIEW,
    PURGE_ANSWER,
    PURGE_MANY,
    REDRIVE,
    REDRIVE_MANY,
    DeadLetterPage,
    InspectedLaunch,
    LetterPreview,
    LetterReason,
    LetterState,
    PurgeAnswer,
    PurgeMany,
    Redrive,
    RedriveMany,
)
from tickrail_api.schemas.launch import LAUNCH, Launch
from tickrail_api.schemas.operation import OPERATION, Operation
from tickrail_api.threads import Routes
from tickrail_api.views import launch_document

router = Routes(tags=["dead letters"])
_ATTEMPTS = 50


class LetterList(PageParameters):
    """Which dead letters, in which order."""

    kind: Literal["launch", "undecodable"] | None = Field(
        None, description="Undecodable messages are seen with an operator's key only."
    )
    job: str | None = Field(None, max_length=140, description="Of this job: id or `name:<name>`.")
    queue: str | None = Field(None, max_length=128)
    reason: list[LetterReason] = Field(default_factory=list, description="For one of these.")
    state: list[LetterState] = Field(default_factory=list, description="In one of these states.")
    tag: list[str] = Field(
        default_factory=list, max_length=10, description="Of jobs with this tag: `key:value`."
    )
    since: str | None = Field(
        None, max_length=64, alias="from", description="Died at or after this instant."
    )
    until: str | None = Field(
        None, max_length=64, alias="to", description="Died before this instant."
    )
    sort: Literal["died_at", "-died_at"] = "-died_at"


@router.get("/v1/dead-letters", responses=answers(DeadLetterPage, page(DEAD_LAUNCH)))
def list_dead_letters(call: Reads, query: Annotated[LetterList, Query()]) -> Response:
    """List dead and abandoned launches, the last to die first. Scope: read.

    With an operator's key undecodable messages are among them; alone, where no tenant is named.
    """
    tags = tag_parameters(query.tag)
    since, until = instant_parameter("from", query.since), instant_parameter("to", query.until)
    if query.queue is not None and not NAME.fullmatch(query.queue):
        raise bad_parameter("queue", f"is {query.queue[:80]!r}", "the name of a queue")
    scope = [
        "dead-letters", query.kind, query.job, query.queue, sorted(query.reason),
        sorted(query.state), tags, since, until, query.sort,
    ]  # fmt: skip
    request = keyset(query, query.sort, scope, read_instant, _cursor_id)
    reasons = [Reason(r) for r in query.reason if r != UNDECODABLE]
    found: list[tuple[datetime, str, dict[str, Any]]] = []
    if _shows_launches(call, query):
        with call.read() as tx:
            where = LetterFilter(
                job=None if query.job is None else job_parameter(tx, query.job),
                queue=query.queue,
                reasons=reasons,
                states=[State(s) for s in query.state],
                tags=tags,
                since=since,
                until=until,
            )
            # One more than asked for tells whether there are more.
            letters = tx.letters.page(where, _one_more(request)).items
        found += [(x.died_at, str(x.launch.id), letter_document(x)) for x in letters]
    if _shows_messages(call, query):
        with call.parts.database.installation(operator=True) as base:
            rows = list_undecodable(base, request, MessageFilter((), query.queue, since, until))
        found += [(row.at, row.id, message_document(row)) for row in rows]
    found.sort(key=lambda one: one[:2], reverse=not request.ascending)
    items = found[: query.limit]
    more = query.next(scope, list(items[-1][:2])) if len(found) > query.limit else None
    return Answer(listed([document for _, _, document in items], more)).response()


def _cursor_id(text: str) -> str:
    if "\x00" in text:
        raise ValueError(text)
    return text


def _one_more(request: PageRequest) -> PageRequest:
    return PageRequest(request.key, request.ascending, request.limit + 1, request.after)


def _shows_launches(call: Call, query: LetterList) -> bool:
    if query.kind == UNDECODABLE or (query.reason and set(query.reason) == {UNDECODABLE}):
        return False
    # An operator who names no tenant is shown what belongs to none, unless launches are asked for.
    asked = query.kind is not None or query.job or query.state or query.tag or query.reason
    return call.for_tenant or bool(asked)


def _shows_messages(call: Call, query: LetterList) -> bool:
    if query.kind == UNDECODABLE and not call.principal.operator:
        raise ForbiddenError("Undecodable messages belong to no tenant: operators' keys see them.")
    of_launches = query.kind == "launch" or query.job or query.state or query.tag
    named = not query.reason or UNDECODABLE in query.reason
    return call.principal.operator and named and not of_launches


@router.get(
    "/v1/dead-letters/{launch}", dependencies=plain, responses=answers(InspectedLaunch, INSPECTED)
)
def get_dead_letter(call: Reads, launch: str) -> Response:
    """Inspect a dead letter: attempts, last response, target and payload. Scope: read."""
    wanted = LaunchId(path_id("dead letter", launch))
    with call.read() as tx:
        letter = tx.letters.find(wanted)
        if letter is None:
            there = require_launch(tx, wanted)
            raise NotFoundError(
                f"The launch {there.id} is no dead letter: it is {_is(there.state)}."
            )
        x = letter.launch
        attempts = tx.launches.attempts(x, max(0, x.attempt - _ATTEMPTS), _ATTEMPTS)
        own, payload = tx.launches.payload_of(x.id)
        definition = tx.jobs.definition_of(x.job, x.job_version) or {}
    return Answer(
        inspected_launch(letter, attempts, definition, own=own, payload=payload)
    ).response()


def _is(state: State) -> str:
    return f"{state}, and purged" if state in (State.DEAD, State.ABANDONED) else state.value


@router.post(
    "/v1/launches/{launch}/redrive",
    status_code=202,
    tags=["launches"],
    dependencies=plain,
    responses=answers(Launch, LAUNCH, 202),
    openapi_extra=body(Redrive, REDRIVE, required=False),
)
def redrive_launch(call: Runs, launch: str) -> Response:
    """Give a dead or abandoned launch another life. Scope: run."""
    wanted, document = LaunchId(path_id("launch", launch)), call.document()

    def effect(tx: Transaction) -> Answer:
        return Answer(launch_document(call.parts.redrives.redrive(tx, wanted, document)), 202)

    return call.write(effect)


@router.post(
    "/v1/dead-letters/redrive",
    status_code=202,
    dependencies=plain,
    responses={**answers(Operation, OPERATION, 202), **answers(LetterPreview, LETTER_PREVIEW)},
    openapi_extra=body(RedriveMany, REDRIVE_MANY, DRY_LETTERS),
)
def redrive_dead_letters(call: Runs) -> Response:
    """Redrive all dead letters of a filter; with `dry_run` only say which. Scope: run."""
    return _begin(call, Kind.REDRIVE, call.document())


@router.post(
    "/v1/dead-letters/purge",
    status_code=202,
    dependencies=plain,
    responses={**answers(Operation, OPERATION, 202), **answers(PurgeAnswer, PURGE_ANSWER)},
    openapi_extra=body(PurgeMany, PURGE_MANY, DRY_LETTERS),
)
def purge_dead_letters(call: Writes) -> Response:
    """Let all dead letters of a filter show no more; with `dry_run` only say which. Scope: write.

    The launches stay dead; one may still be redriven by its id. With an operator's key and the
    `kind` undecodable it deletes messages, at once.
    """
    document = call.document()
    where = document.get("filter") if isinstance(document, dict) else None
    if isinstance(where, dict) and "kind" in where:
        return purge_messages(call, document)
    return _begin(call, Kind.PURGE, document)


def _begin(call: Call, kind: Kind, document: object) -> Response:
    def effect(tx: Transaction) -> Answer:
        made = call.parts.operations.request(tx, kind, document)
        if isinstance(made, OperationPreview):
            items = [letter_document(x) for x in made.letters]
            purged = {"purged": 0} if kind is Kind.PURGE else {}
            return Answer({"total": made.total, **purged, "items": items})
        location = {"Location": f"/v1/operations/{made.id}"}
        return Answer(operation_document(made), 202, location)

    response = call.write(effect)
    call.parts.runner.wake()
    return response
