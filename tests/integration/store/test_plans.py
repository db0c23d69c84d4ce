"""How PostgreSQL finds what is due while its statistics know nothing of a crowd yet."""

from __future__ import annotations

import pytest
from tests.support.database import Database
from tests.support.store_bed import OWNED, PostgresBed, make_job

from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings, connect

pytestmark = pytest.mark.integration
CROWD = """
insert into jobs (id, tenant_id, name, partition, state, plan, next_run_at)
select overlay(gen_random_uuid()::text placing '7' from 15)::uuid, tenant_id, 'job-' || n, n % 4,
       state, plan, next_run_at
from jobs, generate_series(1, 20000) n
"""


def test_due_jobs_are_found_by_their_own_index_whatever_statistics_say(
    bed: PostgresBed, database: Database
) -> None:
    """A plan that began with the tenant read all its jobs for each batch of a new crowd."""
    make_job(bed, due_in=-1)
    bed.conn.execute("analyze")
    bed.conn.execute(CROWD)
    keys = {"partitions": list(OWNED), "limit": 1000}
    with connect(DatabaseSettings(database.engine_url)) as session:
        rows = session.execute(f"explain {load('owner')['due_jobs']}", keys).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "Index Scan using jobs_due on jobs" in plan
    assert "Sort" not in plan
