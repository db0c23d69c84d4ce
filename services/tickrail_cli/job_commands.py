"""`tickrail jobs`, whole: each file adds its commands to the group."""

from __future__ import annotations

from tickrail_cli import backfills, pauses
from tickrail_cli.jobs import jobs

PARTS = (backfills, pauses)

__all__ = ["PARTS", "jobs"]
