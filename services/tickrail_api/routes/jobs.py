"""/v1/jobs: list, create, read, replace, patch, delete."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.definition import NAME
from tickrail.core.errors import NotFoundError
from tickrail.core.job_filter import JobFilter, JobState
from tickrail.core.ports_api import JobRef, Transaction
from tickrail.engine.hints import job_hints
from tickrail.engine.job_rules import require
from tickrail.store.engine import ApiTransaction
from tickrail_api.call import Answer, Prepared, Reads, Writes
from tickrail_api.openapi import answers, body, merge_patch, page
from tickrail_api.paging import (
    PageParameters,
    Parameters,
    bad_parameter,
    job_ref,
    keyset,
    listed,
    range_parameters,
    read_instant,
    read_name,
    tag_parameters,
)
from tickrail_api.query import no_parameters
from tickrail_api.schemas.job import (
    INTERVAL_JOB,
    JOB,
    JOB_ANSWER,
    KAFKA_JOB,
    NEW_JOB,
    PATCH,
    SIGNED_JOB,
    TASK_JOB,
    JobAnswer,
    JobPage,
    NewJob,
)
from tickrail_api.threads import Routes
from tickrail_api.views import etag, job_answer, job_document

router = Routes(tags=["jobs"])
plain = [Depends(no_parameters)]


class JobList(PageParameters):
    """Which jobs, in which order."""

    state: list[Literal["active", "paused", "finished", "deleted"]] = Field(
        default_factory=list, description="In one of these states; all but deleted."
    )
    tag: list[str] = Field(
        default_factory=list, max_length=10, description="`key:value`, or `key` for any value."
    )
    name_prefix: str | None = Field(None, max_length=128)
    queue: str | None = Field(None, max_length=128)
    since: str | None = Field(
        None, max_length=64, alias="from", description="Created at this instant or later."
    )
    until: str | None = Field(None, max_length=64, alias="to", description="Created before it.")
    updated_from: str | None = Field(
        None, max_length=64, description="Changed, paused, resumed or deleted then or later."
    )
    updated_to: str | None = Field(None, max_length=64, description="And last so before it.")
    sort: Literal["created_at", "-created_at", "name", "-name"] = "-created_at"


class PutParameters(Parameters):
    """How to put a job."""

    dry_run: bool = Field(False, description="Answer what would come of it, and change nothing.")


def path_ref(job: str) -> JobRef:
    """The job of a path.

    Raises:
        NotFoundError: what stands there cannot be a job.
    """
    try:
        return job_ref(job)
    except ValueError:
        hint = " (a name is written name:<name>)" if NAME.fullmatch(job) else ""
        raise NotFoundError(f"There is no job {job[:128]!r}{hint}.") from None


@router.get("/v1/jobs", responses=answers(JobPage, page(JOB)))
def list_jobs(call: Reads, query: Annotated[JobList, Query()]) -> Response:
    """List jobs. Scope: read."""
    tags = tag_parameters(query.tag)
    created, updated = (
        range_parameters(("from", query.since), ("to", query.until)),
        range_parameters(("updated_from", query.updated_from), ("updated_to", query.updated_to)),
    )
    scope = [
        "jobs", sorted(query.state), tags, query.name_prefix, query.queue, created, updated,
        query.sort,
    ]  # fmt: skip
    by_name = query.sort.endswith("name")
    request = keyset(query, query.sort, scope, read_name if by_name else read_instant)
    for name, value in (("name_prefix", query.name_prefix), ("queue", query.queue)):
        if value is not None and "\x00" in value:
            raise bad_parameter(name, "contains U+0000", "the beginning of a name")
    where = JobFilter(
        [JobState(s) for s in query.state], tags, query.name_prefix or None, query.queue,
        *created, *updated,
    )  # fmt: skip
    with call.read() as tx:
        found = tx.jobs.page(where, request)
    after = found.after and query.next(scope, [found.after.value, found.after.id])
    return Answer(listed([job_document(j) for j in found.items], after)).response()


@router.post(
    "/v1/jobs",
    status_code=201,
    dependencies=plain,
    responses=answers(JobAnswer, JOB_ANSWER, 201),
    openapi_extra=body(NewJob, NEW_JOB, INTERVAL_JOB, SIGNED_JOB, KAFKA_JOB, TASK_JOB),
)
def create_job(call: Writes) -> Response:
    """Create a job. Scope: write."""
    document = call.document()

    def prepare(egress: Mapping[str, Any] | None) -> Prepared:
        draft = call.parts.jobs.draft(document, egress)
        plan = draft.definition.plan

        def effect(tx: Transaction) -> Answer:
            job = call.parts.jobs.create(tx, draft)
            location = {"Location": f"/v1/jobs/{job.id}", **etag(job)}
            return Answer(
                job_answer(job, job_hints(tx, job, crowd=True, plan=plan), plan), 201, location
            )

        return Prepared(effect, [plan.queue])

    return call.write_checked(prepare)


@router.get("/v1/jobs/{job}", dependencies=plain, responses=answers(JobAnswer, JOB_ANSWER))
def get_job(call: Reads, job: str) -> Response:
    """Read a job. Scope: read."""
    with call.read() as tx:
        found = require(tx, path_ref(job))
        hints = job_hints(tx, found)
    return Answer(job_answer(found, hints), headers=etag(found)).response()


@router.put(
    "/v1/jobs/{job}",
    responses=answers(JobAnswer, JOB_ANSWER, 200, 201),
    openapi_extra=body(NewJob, NEW_JOB),
)
def put_job(call: Writes, job: str, query: Annotated[PutParameters, Query()]) -> Response:
    """Replace a job, or create it where `name:<name>` is new. Scope: write.

    The same document again changes nothing. `If-None-Match: *` creates only. With `dry_run` the
    answer is the job as it would be, with status 200 or the error that it would be, and nothing is
    changed.
    """
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: ApiTransaction) -> Answer:
        with tx.rehearsal() if query.dry_run else nullcontext():
            found, created = call.parts.jobs.put(tx, ref, document, wanted)
            answer = job_answer(found, job_hints(tx, found, crowd=True))
        if query.dry_run:
            return Answer(answer)
        headers = etag(found)
        if created:
            headers["Location"] = f"/v1/jobs/{found.id}"
        return Answer(answer, 201 if created else 200, headers)

    return call.write(effect)


@router.patch(
    "/v1/jobs/{job}",
    dependencies=plain,
    responses=answers(JobAnswer, JOB_ANSWER),
    openapi_extra=merge_patch(PATCH),
)
def patch_job(call: Writes, job: str) -> Response:
    """Change parts of a job: a JSON merge patch of its document. Scope: write."""
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found = call.parts.jobs.patch(tx, ref, document, wanted)
        answer = job_answer(found, job_hints(tx, found, crowd=True))
        return Answer(answer, headers=etag(found))

    return call.write(effect)


@router.delete("/v1/jobs/{job}", status_code=204, dependencies=plain)
def delete_job(call: Writes, job: str) -> Response:
    """Delete a job: launches that do not run yet are cancelled, running ones finish. Scope: write.

    The job can be read for 30 days by its id; its name is free at once.
    """
    ref, wanted = path_ref(job), call.precondition()

    def effect(tx: Transaction) -> Answer:
        call.parts.jobs.delete(tx, ref, wanted)
        return Answer(None, 204)

    return call.write(effect)
