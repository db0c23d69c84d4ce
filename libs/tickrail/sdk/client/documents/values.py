"""Words and values that several documents share."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict

Instant: TypeAlias = datetime | str
Duration: TypeAlias = timedelta | str
Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other"]
Priority = Literal["high", "normal", "low"]
Order = Literal["oldest", "newest"]
InFlight = Literal["finish", "cancel"]
JobState = Literal["active", "paused", "finished", "deleted"]
LaunchState = Literal[
    "held", "due", "queued", "running", "retrying", "succeeded", "dead", "abandoned", "expired",
    "cancelled",
]  # fmt: skip
LaunchReason = Literal[
    "uncertain", "too_large", "worker_lost", "rejected", "not_retryable", "attempts_exhausted"
]
LetterReason = Literal[
    "uncertain", "too_large", "worker_lost", "rejected", "not_retryable", "attempts_exhausted",
    "undecodable",
]  # fmt: skip
LetterState = Literal["dead", "abandoned"]
Kind = Literal["webhook", "kafka", "command", "task", "noop"]
Scope = Literal["read", "run", "write", "admin"]
AuditAction = Literal[
    "authentication.slowed", "backfill.cancel", "backfill.create", "calendar.change",
    "calendar.create", "calendar.delete", "dead_letters.purge", "job.change", "job.create",
    "job.delete", "job.pause", "job.restore", "job.resume", "job.skip_next", "job.trigger",
    "job.undelete", "key.create", "key.revoke", "key.rotate", "launch.cancel", "launch.redrive",
    "member.drain", "member.undrain", "operation.cancel", "operation.create", "operator.read",
    "operator.write", "queue.change", "queue.delete", "queue.limits", "queue.pause", "queue.put",
    "queue.resume", "quota.reached", "quotas.change", "quotas.notify", "secret.change",
    "secret.create", "secret.delete", "tenant.change", "tenant.create", "tenant.delete",
    "tenant.resume", "tenant.suspend", "undecodable.purge",
]  # fmt: skip
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class SecretName(TypedDict):
    """A secret in place of a text."""

    secret: str
