"""The days of the history that are there, as every role may see them."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import text

from tickrail.store.tenancy import BaseTransaction

_DAYS = text("""
select min(to_date(right(c.relname, 8), 'YYYYMMDD')), max(to_date(right(c.relname, 8), 'YYYYMMDD'))
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('public.launches')
""")


class HistoryDays(NamedTuple):
    """The oldest and the newest day that launches have a partition for."""

    oldest: date
    newest: date


def read_days(tx: BaseTransaction) -> HistoryDays | None:
    """The days that are there; None: not one."""
    row: Any = tx.execute(_DAYS).one()
    return None if row[0] is None else HistoryDays(*row)
