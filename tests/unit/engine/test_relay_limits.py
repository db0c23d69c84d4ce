"""The relay under limits: enough is published, and not the whole backlog to be refused."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from tests.support.memory_tables import LaunchRow
from tests.support.stepped import QUEUE, TENANT, Stepped

from tickrail.core.ids import Epoch, LaunchId, TenantId
from tickrail.core.limits import INSTALLATION, Limit, Rate, Scope
from tickrail.core.states import State

EVERYBODY = Scope(INSTALLATION, "queue", QUEUE)
MINE = Scope(TENANT, "queue", QUEUE)
OTHER = TenantId(UUID(int=2))


def work_off(world: Stepped, turns: int) -> list[LaunchRow]:
    """Turns of relay and worker, each run ends in the turn after; who started, in order."""
    worker, before = world.worker(), len(world.worker().executor.started)
    for _ in range(turns):
        world.relay(2)
        worker.take()
        for run in list(worker.executor.running):
            worker.executor.end(run)
        worker.finish()
        world.advance(0.1)
    return [world.row(LaunchId(r.launch_id)) for r in worker.executor.started[before:]]


def publications(world: Stepped) -> int:
    return world.metrics.counts[("relay_published_total",)]


def test_a_backlog_under_a_small_limit_is_not_published_to_be_refused() -> None:
    world = Stepped()
    world.db.limits[MINE] = Limit(max_running=2)
    job = world.job(overlap="allow")
    for _ in range(400):
        world.launch(job)
    started = work_off(world, 60)
    assert len(started) > 100
    assert publications(world) <= 3 * len(started)
    assert world.states()["due"] + len(started) == 400
    # Who was refused goes before what became due later.
    assert len({x.id for x in started}) == len(started)


def test_launches_of_one_key_cost_two_publications_each() -> None:
    world = Stepped()
    job = world.job(overlap="allow")
    for _ in range(100):
        world.launch(job, concurrency_key="k", concurrency_limit=1)
    started = work_off(world, 110)
    assert len(started) == 100
    assert publications(world) <= 200


def test_what_runs_never_exceeds_the_limit_and_uses_it_whole() -> None:
    world = Stepped()
    world.db.limits[EVERYBODY] = Limit(max_running=5)
    for tenant in (TENANT, OTHER):
        job = world.job(tenant=tenant, overlap="allow")
        for _ in range(30):
            world.launch(job)
    seen = []
    worker = world.worker()
    for _ in range(60):
        world.relay(2)
        worker.take()
        seen.append(world.states()["running"])
        for run in list(worker.executor.running)[:2]:
            worker.executor.end(run)
        worker.finish()
    assert max(seen) == 5
    assert world.states() == {"succeeded": 60}


@pytest.mark.parametrize("scope", [EVERYBODY, MINE])
def test_a_limited_tenant_or_queue_holds_up_no_other(scope: Scope) -> None:
    world = Stepped(relay={"outstanding": 40})
    world.db.limits[scope] = Limit(max_running=1)
    crowd = world.job(overlap="allow")
    for _ in range(300):
        world.launch(crowd)
    world.relay(2)
    other = world.launch(world.job(tenant=OTHER, overlap="allow"))
    world.relay(2)
    if scope == MINE:
        assert (other, 1) in world.messages()
    assert sum(n for _, n in world.messages()) < 20
    started = work_off(world, 30)
    assert other in [x.id for x in started[:5]]


def test_a_paused_queue_is_left_alone_at_once_and_goes_on() -> None:
    world = Stepped(relay={"outstanding": 8})
    job = world.job(overlap="allow")
    for _ in range(50):
        world.launch(job)
    world.relay(2)
    published = publications(world)
    assert published == 8
    world.db.limits[MINE] = Limit(paused=True)
    worker = world.worker()
    worker.take()
    assert worker.metrics.counts[("tenant_throttled_total", "paused")] == 8
    world.relay(6)
    assert publications(world) == published  # what waits in its lines, too
    assert world.states() == {"due": 50}
    del world.db.limits[MINE]
    assert len(work_off(world, 12)) == 50


def test_what_a_tick_hands_over_is_braked_as_well() -> None:
    world = Stepped(relay={"scan_every": 600.0})
    world.db.limits[MINE] = Limit(max_running=1)
    for _ in range(50):
        world.job(schedule={"every": "60s"}, overlap="allow")
    world.relay()
    world.advance(60)
    world.tick()
    for _ in range(4):
        world.relayer.run_once(world.owned)
    assert publications(world) == 1


def test_an_owner_of_half_the_partitions_has_half_of_the_window() -> None:
    world = Stepped()
    world.owned = dict.fromkeys(list(world.owned)[:2], Epoch(7))
    world.db.limits[MINE] = Limit(max_running=5)
    job = world.job(overlap="allow")
    for _ in range(50):
        world.launch(job)
    world.relay(6)
    assert world.states()["queued"] == 3  # of five


def test_the_classes_share_a_limited_queue() -> None:
    world = Stepped()
    world.db.limits[EVERYBODY] = Limit(max_running=1)
    job = world.job(overlap="allow")
    for rank in range(3):
        for _ in range(150):
            world.launch(job, priority=rank)
    started = work_off(world, 110)
    shares = Counter(x.priority for x in started[:100])
    assert [shares[n] for n in range(3)] == pytest.approx([60, 30, 10], abs=3)


def test_a_rate_is_used_whole_and_not_exceeded() -> None:
    world = Stepped()
    world.db.limits[MINE] = Limit(rate=Rate(120, 60.0))
    job = world.job(overlap="allow")
    for _ in range(300):
        world.launch(job)
    started = work_off(world, 600)  # a minute
    assert 114 <= len(started) <= 126
    assert publications(world) <= 3 * len(started)


def test_tenants_are_served_by_their_weights() -> None:
    world = Stepped(relay={"outstanding": 40})
    world.db.weights = {OTHER: 3}
    for n in range(8):
        job = world.job(tenant=(TENANT, OTHER)[n % 2], partition=n // 2, overlap="allow")
        for _ in range(25):
            world.launch(job)
    world.relay(2)
    shares = Counter(world.row(launch).tenant_id for launch, _ in world.messages())
    assert shares == {TENANT: 10, OTHER: 30}


def test_what_was_not_delivered_gives_its_room_back() -> None:
    world = Stepped()
    world.db.limits[MINE] = Limit(max_running=2)
    job = world.job(overlap="allow")
    for _ in range(4):
        world.launch(job)
    world.relay()
    for _ in range(3):
        world.bus.down = True
        world.relay()
        world.publisher.give_up()
        assert world.relay().failed == 2
        world.publisher.give_up()
    world.bus.down = False
    world.relay(3)
    assert world.states() == {"queued": 2, "due": 2}


def test_a_lost_holder_lets_the_next_go() -> None:
    world = Stepped()
    job = world.job(overlap="allow")
    first = world.launch(job, concurrency_key="k", concurrency_limit=1)
    world.relay(2)
    lost = world.worker("w-lost")
    lost.take()
    second = world.launch(job, concurrency_key="k", concurrency_limit=1)
    world.relay(2)
    worker = world.worker()
    worker.take()
    lost.take()
    assert world.row(second).state is State.DUE
    world.advance(31)
    world.sweep()
    world.relay(2)
    for one in (worker, lost):
        one.take()
    assert world.row(second).state is State.RUNNING
    assert world.row(first).attempt == 2


def test_the_end_of_a_run_tells_who_waits_at_once() -> None:
    world = Stepped()
    job = world.job(overlap="allow")
    first, second = (world.launch(job, concurrency_key="k", concurrency_limit=1) for _ in range(2))
    world.relay(2)
    worker = world.worker()
    worker.take()
    waits = next(x for x in (first, second) if world.row(x).state is State.DUE)
    assert world.row(waits).due_at > world.clock.now()
    worker.executor.end()
    worker.finish()
    assert world.row(waits).due_at <= world.clock.now()
    assert world.db.wakes == 1
