"""`tickrail jobs`, whole: each file adds its commands to the group."""

from __future__ import annotations

from tickrail_cli import backfills, edit, job_documents, job_times, job_versions, pauses, trigger
from tickrail_cli.jobs import jobs

PARTS = (backfills, edit, job_documents, job_times, job_versions, pauses, trigger)

__all__ = ["PARTS", "jobs"]
