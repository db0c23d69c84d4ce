"""/v1/jobs/{job}/versions and /undelete: what a job was, and how to have it back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.errors import NotFoundError
from tickrail.core.ports_api import JobVersion as Version
from tickrail.core.ports_api import Transaction
from tickrail.engine.hints import job_hints
from tickrail.engine.job_rules import require
from tickrail_api.call import Answer, Reads, Writes
from tickrail_api.openapi import answers, page
from tickrail_api.paging import PageParameters, listed, number_after
from tickrail_api.routes.jobs import path_ref, plain
from tickrail_api.schemas.job import JOB_ANSWER, JobAnswer
from tickrail_api.schemas.job_version import JOB_VERSION, JobVersion, JobVersionPage
from tickrail_api.threads import Routes
from tickrail_api.views import etag, job_answer, ordered

router = Routes(tags=["jobs"])
_MOST = 2**31 - 1


@router.get("/v1/jobs/{job}/versions", responses=answers(JobVersionPage, page(JOB_VERSION)))
def list_versions(call: Reads, job: str, query: Annotated[PageParameters, Query()]) -> Response:
    """List the saved definitions of a job, the newest first. Scope: read.

    Those of a deleted job are found by its id.
    """
    scope = ["versions", job]
    before = number_after(query, scope, 0, _MOST) or None
    with call.read() as tx:
        found = tx.jobs.versions(require(tx, path_ref(job)).id, before, query.limit + 1)
    items = found[: query.limit]
    more = query.next(scope, [items[-1].version]) if len(found) > query.limit else None
    return Answer(listed([version_document(v) for v in items], more)).response()


@router.get(
    "/v1/jobs/{job}/versions/{version}",
    dependencies=plain,
    responses=answers(JobVersion, JOB_VERSION),
)
def get_version(call: Reads, job: str, version: str) -> Response:
    """Read one saved definition of a job. Scope: read."""
    number = _number(version)
    with call.read() as tx:
        found = call.parts.versions.find(tx, path_ref(job), number)
    return Answer(version_document(found)).response()


@router.post(
    "/v1/jobs/{job}/versions/{version}/restore",
    dependencies=plain,
    responses=answers(JobAnswer, JOB_ANSWER),
)
def restore_version(call: Writes, job: str, version: str) -> Response:
    """Give a job the definition of one of its versions, as a new version. Scope: write."""
    ref, number, wanted = path_ref(job), _number(version), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found = call.parts.versions.restore(tx, ref, number, wanted)
        answer = job_answer(found, job_hints(tx, found, crowd=True))
        return Answer(answer, headers=etag(found))

    return call.write(effect)


@router.post(
    "/v1/jobs/{job}/undelete", dependencies=plain, responses=answers(JobAnswer, JOB_ANSWER)
)
def undelete_job(call: Writes, job: str) -> Response:
    """Have a deleted job back, within 30 days; 409 where its name is taken. Scope: write.

    It goes on from now: slots that passed meanwhile are in the ledger as skipped. `name:<name>`
    means the job of that name which was deleted last.
    """
    ref, wanted = path_ref(job), call.precondition()

    def effect(tx: Transaction) -> Answer:
        found = call.parts.versions.undelete(tx, ref, wanted)
        answer = job_answer(found, job_hints(tx, found, crowd=True))
        return Answer(answer, headers=etag(found))

    return call.write(effect)


def version_document(version: Version) -> dict[str, Any]:
    """A saved definition as the API answers it."""
    return {
        "version": version.version,
        "definition": ordered(version.definition),
        "created_at": instant_text(version.created_at),
        "created_by": version.created_by,
    }


def _number(text: str) -> int:
    """The version in a path.

    Raises:
        NotFoundError: what stands there cannot be one.
    """
    found = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) else 0
    if not 1 <= found <= _MOST:
        raise NotFoundError(f"There is no version {text[:128]!r}: a version is a number from 1 on.")
    return found
