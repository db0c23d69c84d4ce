"""`tickrail jobs`, whole: each file adds its commands to the group."""

from __future__ import annotations

from tickrail_cli import backfills, job_documents, job_times, pauses
from tickrail_cli.jobs import jobs

PARTS = (backfills, job_documents, job_times, pauses)

__all__ = ["PARTS", "jobs"]
