"""A change of the zone data in the life of jobs: the real tick and walk, stepped through weeks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_zone_data import MemoryZoneData
from tests.support.stepped import Counted, Stepped

from tickrail.core.ids import Epoch, JobId
from tickrail.engine.zone_data import ZoneData

HOUR = timedelta(hours=1)


def zone(hours: int) -> str:
    return f"Etc/GMT{-hours:+d}"


class Upgraded:
    """A world with one job, whose zone's offset is another by newer data."""

    def __init__(self, schedule: dict[str, str], old: int, **definition: object) -> None:
        self.world = Stepped()
        self.store = MemoryZoneData(self.world.db)
        self.old = old
        given = {**schedule, "time_zone": zone(old)}
        self.job: JobId = self.world.job(
            schedule=given, overlap="allow", misfire={"grace": "10m"}, **definition
        )
        self.metrics = Counted()
        self.zones = self._process("2026a")

    def _process(self, version: str) -> ZoneData:
        return ZoneData(self.store, self.metrics, version=version)

    def upgrade(self, new: int) -> None:
        """Another process owns the partitions, with newer data: the same zone, another offset."""
        row = self.world.db.jobs[self.job]
        row.plan = row.plan.replace(f'"{zone(self.old)}"', f'"{zone(new)}"')
        self.world.take_over(Epoch(8))
        self.zones = self._process("2026b")

    def run(self, hours: float) -> None:
        for _ in range(int(hours * 4)):
            self.world.advance(900)
            self.zones.run_once(self.world.owned)
            self.world.ticker.run_once(self.zones.ready(self.world.owned))


@given(
    hour=st.integers(0, 23),
    old=st.integers(-8, 8),
    grown=st.integers(-3, 3),
    at=st.integers(30, 60),
)
def test_each_local_day_of_a_daily_job_has_one_launch(
    hour: int, old: int, grown: int, at: int
) -> None:
    up = Upgraded({"cron": f"30 {hour} * * *"}, old)
    up.run(at)
    before = len(up.world.launches(up.job))
    up.upgrade(old + grown)
    up.run(100)
    slots = [x.scheduled_at for x in up.world.launches(up.job)]
    offsets = [old if n < before else old + grown for n in range(len(slots))]
    days = [(slot + o * HOUR).date() for slot, o in zip(slots, offsets, strict=True)]
    assert len(days) == len(set(days)) == (days[-1] - days[0]).days + 1
    assert not up.world.db.skips
    assert len(up.store.changes) == (grown != 0)


def test_a_move_is_counted_and_written_down() -> None:
    up = Upgraded({"cron": "0 2 * * *"}, 1)
    up.run(30)
    row = up.world.db.jobs[up.job]
    waited = row.next_run_at
    assert waited is not None
    up.upgrade(2)
    up.run(1)
    (change,) = up.store.changes
    assert (change.before, change.after) == (waited, waited - HOUR)
    assert (change.from_version, change.to_version) == ("2026a", "2026b")
    assert up.metrics.counts == {("tzdata_moves_total",): 1}


def test_nothing_is_ticked_before_the_walk_is_done() -> None:
    up = Upgraded({"cron": "0 2 * * *"}, 1)
    up.run(30)
    up.upgrade(2)
    assert up.zones.ready(up.world.owned) == {}
    up.zones.run_once(up.world.owned)
    assert not up.zones.busy
    assert up.zones.ready(up.world.owned) == up.world.owned


@pytest.mark.parametrize(("policy", "launched"), [("fire_once", True), ("skip", False)])
def test_a_slot_that_the_new_rules_put_into_the_past_follows_the_misfire_policy(
    policy: str, launched: bool
) -> None:
    up = Upgraded({"cron": "0 2 * * *"}, 1)
    up.run(30)
    row = up.world.db.jobs[up.job]
    assert row.next_run_at is not None
    row.plan = row.plan.replace('"fire_once"', f'"{policy}"')
    up.run((row.next_run_at - up.world.clock.now()) / HOUR - 0.5)
    passed = row.next_run_at - HOUR
    assert passed < up.world.clock.now() < row.next_run_at
    up.upgrade(2)
    up.run(2)
    slots = [x.scheduled_at for x in up.world.launches(up.job)]
    assert (passed in slots) is launched
    reasons = [(s.first, s.reason) for s in up.world.db.skips.values()]
    assert reasons == ([] if launched else [(passed, "misfire")])
