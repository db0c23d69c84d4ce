"""What the installation's operators are shown of the zone data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from tickrail.store.tables import partitions
from tickrail.store.tenancy import BaseTransaction

_CHANGES = text(
    "select changed_at, job_id, job_name, tenant, zones, from_version, to_version, before_at,"
    " after_at from list_tzdata_changes(:before, :job, :limit)"
)


def tzdata_versions(tx: BaseTransaction) -> Mapping[str, int]:
    """How many partitions have next runs by each version; empty: unknown."""
    column = partitions.c.tzdata
    rows = tx.execute(
        select(column, func.count().label("number")).group_by(column).order_by(column)
    )
    return {str(row["tzdata"]): int(row["number"]) for row in rows.mappings()}


def list_tzdata_changes(
    tx: BaseTransaction, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[Mapping[str, Any]]:
    """Next runs that newer zone data moved, of every tenant, the newest first."""
    before, job = after or (None, None)
    rows = tx.execute(_CHANGES, {"before": before, "job": job, "limit": limit}).mappings()
    return [{str(name): value for name, value in row.items()} for row in rows]
