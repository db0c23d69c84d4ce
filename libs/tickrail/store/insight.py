"""The port `InsightRecords` on PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from tickrail.core.ports_api import LaunchRecord
from tickrail.core.ports_insight import LogRecord
from tickrail.store.tables import launch_logs
from tickrail.store.tenancy import TenantTransaction

_G = launch_logs.c


class InsightTable:
    """Launches of the transaction's tenant, seen from inside."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def log(self, launch: LaunchRecord, attempt: int) -> LogRecord | None:
        """What an attempt printed; None: nothing is known of it."""
        row: Any = self._tx.execute(
            select(_G.attempt, _G.body, _G.size, _G.ended, _G.updated_at).where(
                _G.scheduled_at == launch.scheduled_at,
                _G.launch_id == launch.id,
                _G.attempt == attempt,
            )
        ).one_or_none()
        return None if row is None else LogRecord(*row)
