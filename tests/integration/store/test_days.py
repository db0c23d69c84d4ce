"""Days of the history are made and dropped while others read it for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, timedelta
from typing import Any

import psycopg
import pytest
from tests.support.store_bed import PostgresBed, make_launch

from tickrail.core.errors import UnavailableError
from tickrail.core.states import State

pytestmark = pytest.mark.integration
TABLES = ("launches", "attempts", "skips", "launch_logs")
DAY = 24 * 3600


@contextmanager
def reader(bed: PostgresBed) -> Iterator[None]:
    """A transaction that has read the history and goes on, as a backup does."""
    with psycopg.connect(bed.database.admin_url) as conn:
        for table in TABLES:
            conn.execute(f"select from {table} limit 1".encode())
        yield


def days(bed: PostgresBed) -> set[date]:
    rows: Any = bed.conn.execute(
        "select to_date(right(c.relname, 8), 'YYYYMMDD') from pg_inherits i"
        " join pg_class c on c.oid = i.inhrelid where i.inhparent = 'launches'::regclass"
    ).fetchall()
    return {row[0] for row in rows}


def today(bed: PostgresBed) -> date:
    return bed.now().astimezone(UTC).date()


def test_a_day_is_made_while_somebody_reads(bed: PostgresBed) -> None:
    new = today(bed) + timedelta(days=9)
    assert new not in days(bed)
    with reader(bed):
        bed.owner().make_days(9)
        assert new in days(bed)


def test_a_day_that_is_made_is_as_its_table_and_as_the_others_are(bed: PostgresBed) -> None:
    bed.owner().make_days(9)
    first = format(today(bed), "%Y%m%d")
    last = format(today(bed) + timedelta(days=9), "%Y%m%d")
    for table in TABLES:
        indexes: Any = bed.conn.execute(
            "select indexrelid::regclass::text from pg_index where indrelid = to_regclass(%s)",
            [table],
        ).fetchall()
        described: Any = bed.conn.execute(
            b"select c.relname, c.reloptions, c.relispartition,"
            b" array(select pg_get_indexdef(i.indexrelid) || ' of '"
            b" || (select inhparent::regclass from pg_inherits where inhrelid = i.indexrelid)"
            b" from pg_index i where i.indrelid = c.oid order by 1),"
            b" array(select pg_get_constraintdef(o.oid) from pg_constraint o"
            b" where o.conrelid = c.oid order by 1),"
            b" array(select attname || format_type(atttypid, atttypmod) || attnotnull"
            b" from pg_attribute where attrelid = c.oid and attnum > 0 order by attnum)"
            b" from pg_class c where c.relname = any(%s) order by 1",
            [[f"{table}_{first}", f"{table}_{last}"]],
        ).fetchall()
        (one, *its), (other, *others) = described
        assert (one, other) == (f"{table}_{first}", f"{table}_{last}")
        assert str(its).replace(first, last) == str(others)
        assert its[1] is True
        assert sorted(x.rpartition(" of ")[2] for x in its[2]) == sorted(x for (x,) in indexes)


def test_a_day_is_not_dropped_while_somebody_reads_and_goes_later(bed: PostgresBed) -> None:
    launch = make_launch(bed, ago=40 * DAY, state=State.SUCCEEDED)
    old = bed.row(launch).scheduled_at.date()
    store = bed.owner()
    with reader(bed), pytest.raises(UnavailableError):
        store.drop_days()
    assert old in days(bed)
    assert store.drop_days() == 1
    assert old not in days(bed)
