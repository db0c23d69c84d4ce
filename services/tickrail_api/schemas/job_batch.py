"""The documents of a request that makes many jobs."""

from __future__ import annotations

from pydantic import Field

from tickrail_api.schemas.base import Document, ProblemEntry
from tickrail_api.schemas.job import INTERVAL_JOB, JOB_ANSWER, NEW_JOB, JobAnswer, NewJob


class NewJobs(Document):
    """Jobs to create."""

    jobs: list[NewJob] = Field(min_length=1, max_length=1000)
    dry_run: bool = Field(False, description="Say what would become of each, and store nothing.")


class JobProblem(Document):
    """Why one of the jobs was not created: an error without the request's id."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemEntry]


class JobResult(Document):
    """What became of one of the jobs."""

    status: int = Field(
        description="201 (of a dry run 200), or the status that the job alone would have got."
    )
    job: JobAnswer | None = Field(description="Of a dry run as it would be; its id is nobody's.")
    error: JobProblem | None


class JobResults(Document):
    """What became of each, in the order of the request."""

    items: list[JobResult]
    created: int = Field(description="How many were created: none by a dry run.")
    failed: int = Field(description="How many were not right.")
    dry_run: bool


NEW_JOBS = {"jobs": [NEW_JOB, INTERVAL_JOB], "dry_run": False}
JOB_RESULTS = {
    "items": [
        {"status": 201, "job": JOB_ANSWER, "error": None},
        {
            "status": 409,
            "job": None,
            "error": {
                "type": "urn:tickrail:problem:name_taken",
                "title": "The name is taken already",
                "status": 409,
                "code": "name_taken",
                "detail": "A live job has the name 'poll-orders' already.",
                "errors": [
                    {
                        "pointer": "/jobs/1/name",
                        "message": "is taken",
                        "expected": "another name (an HTTP PUT on name:<name> changes the job that"
                        " is there)",
                    }
                ],
            },
        },
    ],
    "created": 1,
    "failed": 1,
    "dry_run": False,
}
