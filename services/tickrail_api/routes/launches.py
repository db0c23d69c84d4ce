"""/v1/launches: history, attempts, logs, explanations, cancel."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.errors import NotFoundError
from tickrail.core.ids import JobId, LaunchId
from tickrail.core.ports_api import LaunchFilter, Transaction
from tickrail.engine.launches import attempts_of, require_launch
from tickrail.engine.run_logs import log_of
from tickrail_api.call import Answer, Reads, Runs
from tickrail_api.openapi import answers, page
from tickrail_api.paging import (
    PageParameters,
    Parameters,
    bad_parameter,
    instant_parameter,
    job_ref,
    keyset,
    listed,
    number_after,
    path_id,
    read_instant,
    tag_parameters,
)
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.launch import (
    ATTEMPT,
    EXPLANATION,
    LAUNCH,
    LOG,
    AttemptPage,
    Launch,
    LaunchExplanation,
    LaunchPage,
    Log,
    State,
)
from tickrail_api.threads import Routes
from tickrail_api.views import (
    attempt_document,
    explanation_document,
    launch_document,
    log_document,
)

router = Routes(tags=["launches"])


class LogOf(Parameters):
    """Which log."""

    attempt: Annotated[
        int | None, Field(ge=1, le=2**31 - 1, description="Of this attempt; default: the last.")
    ] = None


class LaunchList(PageParameters):
    """Which launches, in which order."""

    job: str | None = Field(None, max_length=140, description="Of this job: id or `name:<name>`.")
    state: list[State] = Field(default_factory=list, description="In one of these states.")
    tag: list[str] = Field(
        default_factory=list, max_length=10, description="Of jobs with this tag: `key:value`."
    )
    queue: str | None = Field(None, max_length=128)
    origin: Literal["schedule", "manual", "backfill"] | None = None
    since: str | None = Field(
        None, max_length=64, alias="from", description="Scheduled at or after this instant."
    )
    until: str | None = Field(
        None, max_length=64, alias="to", description="Scheduled before this instant."
    )
    sort: Literal["scheduled_at", "-scheduled_at"] = "-scheduled_at"


@router.get("/v1/launches", responses=answers(LaunchPage, page(LAUNCH)))
def list_launches(call: Reads, query: Annotated[LaunchList, Query()]) -> Response:
    """List launches, the newest first. Scope: read."""
    tags = tag_parameters(query.tag)
    since, until = instant_parameter("from", query.since), instant_parameter("to", query.until)
    if query.queue is not None and "\x00" in query.queue:
        raise bad_parameter("queue", "contains U+0000", "the name of a queue")
    scope = [
        "launches", query.job, sorted(query.state), tags, query.queue, query.origin, since, until,
        query.sort,
    ]  # fmt: skip
    request = keyset(query, query.sort, scope, read_instant)
    with call.read() as tx:
        where = LaunchFilter(
            job=None if query.job is None else job_parameter(tx, query.job),
            states=query.state,
            tags=tags,
            queue=query.queue,
            origin=query.origin,
            since=since,
            until=until,
        )
        found = tx.launches.page(where, request)
    after = found.after and query.next(scope, [found.after.value, found.after.id])
    return Answer(listed([launch_document(x) for x in found.items], after)).response()


@router.get("/v1/launches/{launch}", dependencies=plain, responses=answers(Launch, LAUNCH))
def get_launch(call: Reads, launch: str) -> Response:
    """Read a launch. Scope: read."""
    with call.read() as tx:
        found = require_launch(tx, LaunchId(path_id("launch", launch)))
    return Answer(launch_document(found)).response()


@router.get("/v1/launches/{launch}/attempts", responses=answers(AttemptPage, page(ATTEMPT)))
def list_attempts(call: Reads, launch: str, query: Annotated[PageParameters, Query()]) -> Response:
    """The attempts of a launch, the first one first. Scope: read."""
    scope = ["attempts", launch.lower()]
    after = number_after(query, scope, 0)
    with call.read() as tx:
        found = attempts_of(
            tx, require_launch(tx, LaunchId(path_id("launch", launch))), after, query.limit + 1
        )
    items = found[: query.limit]
    more = query.next(scope, [items[-1].attempt]) if len(found) > query.limit else None
    return Answer(listed([attempt_document(a) for a in items], more)).response()


@router.get(
    "/v1/launches/{launch}/explain",
    dependencies=plain,
    responses=answers(LaunchExplanation, EXPLANATION),
)
def explain_launch(call: Reads, launch: str) -> Response:
    """Why a launch stands where it stands: the checks in order, and the one that keeps it.

    Or how it ended and why. Of other tenants' launches only numbers are told. Scope: read.
    """
    with call.read() as tx:
        found = require_launch(tx, LaunchId(path_id("launch", launch)))
        facts = tx.insight.facts(found)
    return Answer(explanation_document(found, call.parts.explainer.explain(facts))).response()


@router.get("/v1/launches/{launch}/log", responses=answers(Log, LOG))
def get_log(call: Reads, launch: str, query: Annotated[LogOf, Query()]) -> Response:
    """What an attempt has printed, also while it runs; empty for targets that print nothing.

    Scope: read.
    """
    with call.read() as tx:
        found = require_launch(tx, LaunchId(path_id("launch", launch)))
        log = log_of(tx.insight, found, query.attempt, tx.now)
    return Answer(log_document(log)).response()


@router.post(
    "/v1/launches/{launch}/cancel",
    status_code=202,
    dependencies=plain,
    responses=answers(Launch, LAUNCH, 202),
)
def cancel_launch(call: Runs, launch: str) -> Response:
    """Cancel a launch; a running one is asked to stop. Scope: run."""
    wanted = LaunchId(path_id("launch", launch))
    # A body has nothing to say here, but what is not JSON is refused as everywhere.
    call.document()

    def effect(tx: Transaction) -> Answer:
        return Answer(launch_document(call.parts.launches.cancel(tx, wanted)), 202)

    return call.write(effect)


def job_parameter(tx: Transaction, text: str) -> JobId:
    """The job that a query parameter names.

    Raises:
        InvalidInputError: neither an id nor `name:<name>`.
        NotFoundError: there is no such job.
    """
    try:
        found = tx.jobs.find(job_ref(text))
    except ValueError:
        raise bad_parameter("job", f"is {text!r}", "an id, or name:<name>") from None
    if found is None:
        raise NotFoundError(f"There is no job {text}.")
    return found.id
