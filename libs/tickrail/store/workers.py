"""The workers that are there, as the API reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from tickrail.store.tables import workers
from tickrail.store.tenancy import BaseTransaction

_W = workers.c


def list_workers(tx: BaseTransaction, heard_within: timedelta) -> Sequence[Mapping[str, Any]]:
    """Workers that were heard of within a time, by name."""
    rows = tx.execute(
        select(workers).where(_W.seen_at > tx.now - heard_within).order_by(_W.name, _W.id)
    )
    return [{str(name): value for name, value in row.items()} for row in rows.mappings()]
