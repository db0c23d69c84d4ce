"""/v1/jobs/batch: many jobs by one request."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tickrail.core.errors import TickrailError
from tickrail.core.ports_api import Transaction
from tickrail.engine.hints import plan_hints
from tickrail.engine.job_batch import Created, create_batch, read_batch
from tickrail_api.call import Answer, Writes
from tickrail_api.openapi import answers, body
from tickrail_api.problems import problem_document
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.job_batch import JOB_RESULTS, NEW_JOBS, JobResults, NewJobs
from tickrail_api.threads import Routes
from tickrail_api.views import job_answer

router = Routes(tags=["jobs"])
_CREATED = 201
_RIGHT = 200
"""Of a dry run, as a PUT's has it."""


@router.post(
    "/v1/jobs/batch",
    dependencies=plain,
    responses=answers(JobResults, JOB_RESULTS),
    openapi_extra=body(NewJobs, NEW_JOBS),
)
def create_jobs(call: Writes) -> Response:
    """Create up to 1,000 jobs, in a body of up to 16 MiB. Scope: write.

    Each gets a result of its own, in the order of the request: one that is wrong does not hold up
    the others. All that are right are stored together, under one Idempotency-Key. With `dry_run`
    nothing is: `created` is 0, and of each that is right the job is answered as it would be, with
    status 200 and an id that no job gets.
    """
    batch = read_batch(call.parts.jobs, call.document(), call.egress())

    def effect(tx: Transaction) -> Answer:
        right = _RIGHT if batch.dry_run else _CREATED
        items = [_result(tx, i, right) for i in create_batch(tx, call.parts.jobs, batch)]
        failed = sum(i["error"] is not None for i in items)
        made = 0 if batch.dry_run else len(items) - failed
        return Answer({"items": items, "created": made, "failed": failed, "dry_run": batch.dry_run})

    return call.write(effect, batch.queues)


def _result(tx: Transaction, item: Created | TickrailError, right: int) -> dict[str, Any]:
    if isinstance(item, TickrailError):
        error = problem_document(item)
        return {"status": error["status"], "job": None, "error": error}
    answer = job_answer(item.job, plan_hints(item.plan, tx.now), item.plan)
    return {"status": right, "job": answer, "error": None}
