"""The workers that are there, as the API reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import any_, func, select

from tickrail.store.tables import queues, workers
from tickrail.store.tenancy import BaseTransaction

_W = workers.c
_Q = queues.c


def list_workers(tx: BaseTransaction, heard_within: timedelta) -> Sequence[Mapping[str, Any]]:
    """Workers that were heard of within a time, by name."""
    rows = tx.execute(
        select(workers).where(_W.seen_at > tx.now - heard_within).order_by(_W.name, _W.id)
    )
    return [{str(name): value for name, value in row.items()} for row in rows.mappings()]


def count_workers(tx: BaseTransaction, heard_within: timedelta) -> Mapping[str, int]:
    """For each queue the workers heard of within a time that serve it and do not drain."""
    serves = (_Q.name == any_(_W.queues)) & ~_W.draining & (_W.seen_at > tx.now - heard_within)
    rows: Sequence[Any] = tx.execute(
        select(_Q.name, func.count(_W.id))
        .select_from(queues.outerjoin(workers, serves))
        .group_by(_Q.name)
    ).all()
    return {str(name): int(count) for name, count in rows}
