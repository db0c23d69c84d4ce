"""Misfires on the stepped installation, their records and metrics: cases B-01, B-05 and B-07."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.clock import FakeClock
from tests.support.ownership_world import World
from tests.support.stepped import Stepped

from tickrail.core.ids import JobId


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture
def world() -> Stepped:
    return Stepped()


def job_at(world: Stepped, start: str, **definition: object) -> JobId:
    world.clock.set_now(at(start))
    return world.job(**definition)


def skipped(world: Stepped) -> int:
    return world.metrics.counts["slots_skipped_total", "misfire"]


@pytest.mark.parametrize("start", ["2026-01-01T08:29:00", "2025-12-22T10:21:00"])
def test_b01_an_outage_of_any_length_ends_with_one_launch(world: Stepped, start: str) -> None:
    job = job_at(world, start, schedule={"cron": "* * * * *"})
    world.clock.set_now(at("2026-01-01T10:21:00"))
    world.tick()
    assert [x.scheduled_at for x in world.launches(job)] == [at("2026-01-01T10:21:00")]
    missed = (at("2026-01-01T10:20:00") - at(start)) // timedelta(minutes=1)
    assert skipped(world) == missed
    assert sum(s.count for s in world.db.skips.values()) == missed
    assert world.db.jobs[job].next_run_at == at("2026-01-01T10:22:00")
    world.advance(59)
    assert world.tick().jobs == 0
    world.advance(1)
    assert len(world.tick().inserted) == 0, "the launch before is still open: overlap is skip"


@pytest.mark.parametrize("late", [1.6, 45.0])
@pytest.mark.parametrize("policy", ["fire_once", "fire_all", "skip"])
def test_b05_ordinary_lateness_runs_without_a_word(
    world: Stepped, policy: str, late: float
) -> None:
    misfire = {"policy": policy}
    job = job_at(world, "2026-01-01T01:00:00", schedule={"cron": "0 2 * * *"}, misfire=misfire)
    world.clock.set_now(at("2026-01-01T02:00:00") + timedelta(seconds=late))
    assert len(world.tick().inserted) == 1
    assert world.launches(job)[0].scheduled_at == at("2026-01-01T02:00:00")
    assert world.db.skips == {}
    assert skipped(world) == 0


def test_b05_a_misfire_is_recorded_and_counted(world: Stepped) -> None:
    misfire = {"policy": "skip", "grace": "5s"}
    job = job_at(world, "2026-01-01T01:00:00", schedule={"cron": "0 2 * * *"}, misfire=misfire)
    world.clock.set_now(at("2026-01-01T02:00:06"))
    assert len(world.tick().inserted) == 0
    (record,) = world.db.skips.values()
    assert (record.job_id, record.reason, record.count) == (job, "misfire", 1)
    assert skipped(world) == 1


def test_b07_a_node_whose_clock_jumped_by_decades_plans_nothing_until_it_is_right() -> None:
    """The database's clock is the one that counts; the node sees that its own is another."""
    nodes = World()
    node = nodes.process("a")
    node.step()
    assert node.owned
    installation = Stepped()
    job = job_at(
        installation,
        "2026-01-01T00:00:00",
        schedule={"cron": "* * * * *"},
        misfire={"policy": "fire_all", "max_count": 10_000},
        overlap="allow",
    )
    node.clock.set_now(at("2200-01-01T00:00:00"))
    for _ in range(5):
        installation.advance(1)
        nodes.run(1)
        if node.ownership.trusted():
            installation.tick()
    assert node.owned == set()
    assert not node.ownership.trusted()
    assert installation.launches(job) == []
    node.clock.set_now(nodes.clock.now())
    nodes.run(4)
    assert node.owned
    installation.advance(60)
    installation.tick()
    assert [x.scheduled_at for x in installation.launches(job)] == [at("2026-01-01T00:01:00")]


def test_b07_a_database_that_was_wrong_for_a_while_costs_no_more_than_the_bounds() -> None:
    """Were it the database's own clock: the bounds of the policy hold, and nothing comes twice."""
    world = Stepped()
    assert isinstance(world.clock, FakeClock)
    job = job_at(
        world,
        "2026-01-01T00:00:00",
        schedule={"cron": "* * * * *"},
        misfire={"policy": "fire_all", "max_count": 3},
        overlap="allow",
    )
    world.clock.set_now(at("2200-01-01T00:00:00"))
    world.tick()
    # Three missed ones, and the one that is on time.
    assert len(world.launches(job)) == 4
    recorded = sum(s.count for s in world.db.skips.values())
    assert recorded + 4 == 91_514_880
    world.clock.set_now(at("2026-01-01T00:00:05"))
    world.tick()
    assert len(world.launches(job)) == 4
