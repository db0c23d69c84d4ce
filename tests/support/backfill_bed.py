"""Rows of `backfills` on either bed of `store_bed.py`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg import sql
from psycopg.types.json import Jsonb
from tests.support.memory_tables import BackfillRow
from tests.support.store_bed import Bed, MemoryBed, PostgresBed

from tickrail.core.backfill import Backfill, Existing
from tickrail.core.ids import JobId
from tickrail.core.policies import CatchUpOrder

_COLUMNS = (
    "id", "from_at", "until_at", "newest_first", "existing", "max_count", "max_open", "per_minute",
    "total", "next_at", "cursor_at", "launched", "left_alone", "job_id", "state", "payload",
    "has_payload",
)  # fmt: skip


def make_backfill(
    bed: Bed,
    job: JobId,
    from_at: datetime,
    until_at: datetime,
    *,
    payload: Any = None,
    has_payload: bool = False,
    **columns: Any,
) -> UUID:
    """A running backfill that may go on at once."""
    values = {
        "order": CatchUpOrder.OLDEST, "existing": Existing.LEAVE, "max_count": None,
        "max_open": 10, "per_minute": None, "total": 0,
        "next_at": bed.now() - timedelta(seconds=1),
    }  # fmt: skip
    row = BackfillRow(
        Backfill(uuid4(), from_at, until_at, **{**values, **columns}), job, payload=payload,
        has_payload=has_payload,
    )  # fmt: skip
    if isinstance(bed, MemoryBed):
        bed.db.backfills[row.backfill.id] = row
        return row.backfill.id
    assert isinstance(bed, PostgresBed)
    b, owner = row.backfill, bed.job_row(job)
    given = dict(
        zip(
            _COLUMNS,
            [b.id, b.from_at, b.until_at, b.order is CatchUpOrder.NEWEST, b.existing.value,
             b.max_count, b.max_open, b.per_minute, b.total, b.next_at, b.cursor_at, b.launched,
             b.left_alone, job, row.state, Jsonb(payload) if has_payload else None, has_payload],
            strict=True,
        )
    )  # fmt: skip
    given |= {"tenant_id": owner.tenant_id, "partition": owner.partition}
    bed.conn.execute(
        sql.SQL("insert into backfills ({}) values ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, given)),
            sql.SQL(", ").join(sql.Placeholder() * len(given)),
        ),
        list(given.values()),
    )
    return b.id


def backfill_row(bed: Bed, backfill: UUID) -> BackfillRow:
    """The row as it is."""
    if isinstance(bed, MemoryBed):
        return bed.db.backfills[backfill]
    assert isinstance(bed, PostgresBed)
    row: Any = bed.conn.execute(
        sql.SQL("select {} from backfills where id = %s").format(
            sql.SQL(", ").join(map(sql.Identifier, _COLUMNS))
        ),
        [backfill],
    ).fetchone()
    order = CatchUpOrder.NEWEST if row[3] else CatchUpOrder.OLDEST
    return BackfillRow(Backfill(*row[:3], order, Existing(row[4]), *row[5:13]), *row[13:])


def set_state(bed: Bed, backfill: UUID, state: str) -> None:
    """As the API does."""
    if isinstance(bed, MemoryBed):
        bed.db.backfills[backfill].state = state
        return
    assert isinstance(bed, PostgresBed)
    bed.conn.execute("update backfills set state = %s where id = %s", [state, backfill])
