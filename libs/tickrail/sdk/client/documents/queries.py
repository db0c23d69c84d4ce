"""The queries of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from tickrail.sdk.client.documents.values import (
    AuditAction,
    Instant,
    JobState,
    LaunchState,
    LetterReason,
    LetterState,
)


class PageQuery(TypedDict, total=False):
    """Where a list begins (`cursor`: behind a page before), and items of each page (`limit`)."""

    limit: int
    cursor: str


class JobQuery(PageQuery, total=False):
    """Which jobs, in which order; `from_` and `to` are of when they were created."""

    state: Sequence[JobState]
    tag: Sequence[str]
    name_prefix: str
    queue: str
    from_: Instant
    to: Instant
    updated_from: Instant
    updated_to: Instant
    sort: Literal["created_at", "-created_at", "name", "-name"]


class UpcomingQuery(TypedDict, total=False):
    """Which slots to come."""

    n: int
    after: Instant


class SlotQuery(PageQuery, total=False):
    """Which slots of the ledger, in which order."""

    from_: Instant
    to: Instant
    sort: Literal["at", "-at"]


class LaunchQuery(PageQuery, total=False):
    """Which launches, in which order."""

    job: str
    state: Sequence[LaunchState]
    tag: Sequence[str]
    queue: str
    origin: Literal["schedule", "manual", "backfill"]
    from_: Instant
    to: Instant
    sort: Literal["scheduled_at", "-scheduled_at"]


class LetterQuery(PageQuery, total=False):
    """Which dead letters, in which order."""

    kind: Literal["launch", "undecodable"]
    job: str
    queue: str
    reason: Sequence[LetterReason]
    state: Sequence[LetterState]
    tag: Sequence[str]
    from_: Instant
    to: Instant
    sort: Literal["died_at", "-died_at"]


class KeyQuery(PageQuery, total=False):
    """Which keys."""

    state: Literal["active", "expired", "revoked"]


class AuditQuery(PageQuery, total=False):
    """Which entries of the audit log, in which order."""

    actor: str
    action: AuditAction
    subject: str
    request_id: str
    from_: Instant
    to: Instant
    sort: Literal["at", "-at"]


class TenantQuery(PageQuery, total=False):
    """Which tenants."""

    state: Literal["active", "suspended", "deleted"]
