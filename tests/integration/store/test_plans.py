"""How PostgreSQL finds what it is asked for while its statistics know nothing of a crowd yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from tests.support.database import Database
from tests.support.store_bed import OWNED, PostgresBed, make_job

from tickrail.core.clock import SystemClock
from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings, connect

CLOCK = SystemClock()
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


ENDED = """
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
                      origin, state, phase, max_attempts, rerun, visibility, due_at,
                      finished_at, epoch)
select overlay(gen_random_uuid()::text placing '7' from 15)::uuid, now() - n * interval '1 ms',
       tenant_id, id, 1, n % 4, 'default', 2, 'schedule', 'succeeded', 3, 5, true, 30, now(),
       now(), 1
from jobs, generate_series(1, 20000) n
"""


def buffers(database: Database, statement: str, keys: Mapping[str, object]) -> int:
    """How many pages a statement of the owner's reads when it runs."""
    asked = f"explain (analyze, buffers, format json) {load('owner')[statement]}"
    with connect(DatabaseSettings(database.engine_url)) as session:
        row = session.execute(asked, keys).fetchone()
        session.rollback()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("statement", ["oldest_open", "expire"])
def test_launches_that_ended_are_not_read_by_the_owners_looks(
    statement: str, bed: PostgresBed, database: Database
) -> None:
    """Each of a herd's launches was read every second, half a second long, by these two."""
    make_job(bed)
    bed.conn.execute("analyze")
    bed.conn.execute(ENDED)
    keys = {"partitions": list(OWNED), "since": CLOCK.now() - timedelta(hours=2), "limit": 100}
    assert buffers(database, statement, keys) < 200
    bed.conn.execute("analyze launches")
    assert buffers(database, statement, keys) < 200


def test_names_are_looked_up_by_their_index(bed: PostgresBed, database: Database) -> None:
    """All jobs of the tenant were read for each batch that a new tenant made."""
    job = make_job(bed)
    bed.conn.execute("analyze")
    bed.conn.execute(CROWD)
    row = bed.conn.execute("select tenant_id from jobs where id = %s", [job]).fetchone()
    assert row is not None
    names = [f"job-{n}" for n in range(100, 150)]
    asked = "select name from jobs where name = any(%s) and state <> 'deleted'"
    with connect(DatabaseSettings(database.api_url)) as session:
        session.execute("select set_config('tickrail.tenant', %s, false)", [str(row[0])])
        found = session.execute(f"explain (analyze, format json) {asked}", [names]).fetchone()
    assert found is not None
    plan = found[0][0]["Plan"]
    assert (plan["Actual Rows"], plan.get("Rows Removed by Filter", 0)) == (50, 0)
