"""What the ledger says of slots that no scheduler has dealt with."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.support.memory_api import MemoryApi
from tests.support.stepped import PARTITIONS, Stepped

from tickrail.core.ids import JobId
from tickrail.engine.job_rules import JobRules
from tickrail.engine.jobs import Jobs
from tickrail.engine.ledger import LedgerRequest, slots

START = datetime.fromisoformat("2026-03-02T16:44:00+00:00")
TEN = timedelta(seconds=10)
NOOP = {"noop": {}}


def told(
    api: MemoryApi, job: JobId, until: datetime | None, *, ascending: bool
) -> list[tuple[int, str, str | None]]:
    """Seconds after the start, kind and reason of each row."""
    request = LedgerRequest(START, until, ascending=ascending, limit=8)
    with api.transaction() as tx:
        record = tx.jobs.find(job)
        assert record is not None
        rows, _ = slots(tx, record, request)
    return [(int((r.at - START).total_seconds()), r.kind.name.lower(), r.reason) for r in rows]


def each_ten_seconds() -> tuple[Stepped, MemoryApi, JobId]:
    world = Stepped()
    world.clock.set_now(START)
    api, jobs = MemoryApi(world.db), Jobs(JobRules(PARTITIONS), world.clock)
    schedule = {"every": "10s", "anchor": START.isoformat()}
    draft = jobs.draft({"name": "a", "schedule": schedule, "overlap": "allow", "target": NOOP})
    with api.transaction() as tx:
        return world, api, jobs.create(tx, draft).id


def test_a_slot_whose_instant_has_passed_is_undecided_while_no_scheduler_runs() -> None:
    world, api, job = each_ten_seconds()
    world.advance(10)
    world.tick()
    world.advance(21)
    passed = [(20, "upcoming", "undecided"), (30, "upcoming", "undecided")]
    to_come = [(at, "upcoming", None) for at in (40, 50, 60, 70, 80)]
    assert told(api, job, None, ascending=True) == [(10, "launched", None), *passed, *to_come]
    until = START + 6 * TEN
    newest = [*to_come[1::-1], *passed[::-1], (10, "launched", None)]
    assert told(api, job, until, ascending=False) == newest
    world.tick()
    assert {row[2] for row in told(api, job, None, ascending=True)} <= {None, "misfire"}


def test_a_slot_that_is_due_at_this_very_instant_is_undecided() -> None:
    world, api, job = each_ten_seconds()
    world.advance(10)
    first, second, *_ = told(api, job, None, ascending=True)
    assert first == (10, "upcoming", "undecided")
    assert second == (20, "upcoming", None)
