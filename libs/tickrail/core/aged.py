"""Records that are of use for a time and nobody else's to remove."""

from __future__ import annotations

from enum import StrEnum


class Aged(StrEnum):
    """What goes by its age alone. The values name the statements in `store/sql/upkeep.sql`."""

    ANSWERS = "answers"
    """Answers kept for requests that are repeated with their `Idempotency-Key`."""
    OPERATOR_ANSWERS = "operator_answers"
    """Those to operators who named no tenant."""
    KEYS = "keys"
    """API keys, from when they expired or were revoked."""
    UNDECODABLE = "undecodable"
    """Messages that could not be read."""
    BACKFILLS = "backfills"
    """Backfills, from their end."""
    OPERATIONS = "operations"
    """Operations, from their end."""
    NOTICES = "notices"
    """Notices, whatever became of them."""
    WINDOWS = "windows"
    """What was used of quotas of launches, from the beginning of the window."""
    BUCKETS = "buckets"
    """Tokens for requests, from when any was last taken."""
