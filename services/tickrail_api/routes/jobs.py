"""/v1/jobs: list, create, read, replace, patch, delete."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.definition import NAME
from tickrail.core.errors import NotFoundError
from tickrail.core.job_filter import JobFilter, JobState
from tickrail.core.ports_api import JobRef, Transaction
from tickrail.engine.hints import job_hints
from tickrail.engine.job_rules import require
from tickrail_api.call import Answer, Reads, Writes, no_parameters
from tickrail_api.openapi import answers, body, merge_patch, page
from tickrail_api.paging import (
    PageParameters,
    bad_parameter,
    job_ref,
    keyset,
    listed,
    read_instant,
    read_name,
    tag_parameters,
)
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
from tickrail_api.views import etag, job_answer, job_document

router = APIRouter(tags=["jobs"])
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
    sort: Literal["created_at", "-created_at", "name", "-name"] = "-created_at"


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
    scope = ["jobs", sorted(query.state), tags, query.name_prefix, query.queue, query.sort]
    by_name = query.sort.endswith("name")
    request = keyset(query, query.sort, scope, read_name if by_name else read_instant)
    for name, value in (("name_prefix", query.name_prefix), ("queue", query.queue)):
        if value is not None and "\x00" in value:
            raise bad_parameter(name, "contains U+0000", "the beginning of a name")
    where = JobFilter(
        [JobState(s) for s in query.state], tags, query.name_prefix or None, query.queue
    )
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
    draft = call.parts.jobs.draft(call.document(), call.egress())

    def effect(tx: Transaction) -> Answer:
        job = call.parts.jobs.create(tx, draft)
        location = {"Location": f"/v1/jobs/{job.id}", **etag(job)}
        return Answer(job_answer(job, job_hints(tx, job, crowd=True)), 201, location)

    return call.write(effect)


@router.get("/v1/jobs/{job}", dependencies=plain, responses=answers(JobAnswer, JOB_ANSWER))
def get_job(call: Reads, job: str) -> Response:
    """Read a job. Scope: read."""
    with call.read() as tx:
        found = require(tx, path_ref(job))
        hints = job_hints(tx, found)
    return Answer(job_answer(found, hints), headers=etag(found)).response()


@router.put(
    "/v1/jobs/{job}",
    dependencies=plain,
    responses=answers(JobAnswer, JOB_ANSWER, 200, 201),
    openapi_extra=body(NewJob, NEW_JOB),
)
def put_job(call: Writes, job: str) -> Response:
    """Replace a job, or create it where `name:<name>` is new. Scope: write.

    The same document again changes nothing. `If-None-Match: *` creates only.
    """
    ref, document, wanted = path_ref(job), call.document(), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found, created = call.parts.jobs.put(tx, ref, document, wanted)
        headers = etag(found)
        if created:
            headers["Location"] = f"/v1/jobs/{found.id}"
        answer = job_answer(found, job_hints(tx, found, crowd=True))
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
