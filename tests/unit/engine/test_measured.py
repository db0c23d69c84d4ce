"""What the loops tell the metrics of their work."""

from __future__ import annotations

from tests.support.stepped import HandExecutor, Stepped, Worker, failure

from tickrail.core.execution import SUCCESS

T = "00000000-0000-0000-0000-000000000001"


def taken(world: Stepped) -> tuple[Worker, HandExecutor]:
    """A worker that has begun what is queued."""
    worker = world.worker()
    worker.take()
    worker.take()
    return worker, worker.executor


def test_the_oldest_due_launch_counts_until_it_is_in_the_topic() -> None:
    world = Stepped()
    world.relay()
    assert world.metrics.gauges["oldest_due_seconds"] == 0
    world.bus.down = True
    world.launch()
    world.relay(2)
    for _ in range(3):
        world.advance(30)
        world.relay(2)
    assert world.metrics.gauges["oldest_due_seconds"] == 90, "it waits in the relay all the while"
    world.bus.down = False
    world.advance(5)
    world.relay(3)
    world.advance(5)
    world.relay()
    assert world.metrics.gauges["oldest_due_seconds"] == 0


def test_what_is_queued_is_told_by_queue_and_as_nothing_when_it_has_gone() -> None:
    world = Stepped()
    for _ in range(3):
        world.launch(world.job(overlap="allow"))
    world.relay(2)
    world.advance(5)
    world.relay()
    assert world.metrics.gauges["launches_queued"] == 3
    taken(world)
    world.advance(5)
    world.relay()
    assert world.metrics.gauges["launches_queued"] == 0


def test_a_run_is_measured_with_its_tenant_and_only_a_first_start_has_a_lag() -> None:
    world = Stepped()
    launch = world.launch(world.job(retry={"max_attempts": 3, "initial": "1s", "jitter": 0}))
    world.relay(2)
    world.advance(2)
    worker, executor = taken(world)
    world.advance(7)
    executor.end(outcome=failure())
    worker.finish()
    assert worker.metrics.observed["start_lag_seconds"] == [2]
    assert worker.metrics.observed["run_seconds"] == [7]
    assert worker.metrics.counts["tenant_starts_total", T] == 1
    assert worker.metrics.counts["tenant_start_lag_seconds_total", T] == 2
    assert worker.metrics.counts["tenant_run_seconds_total", T] == 7
    assert worker.metrics.counts["tenant_launches_total", T, "retried"] == 1
    world.advance(60)
    world.relay(3)
    worker.take()
    worker.take()
    world.advance(1)
    executor.end(outcome=SUCCESS)
    worker.finish()
    assert world.row(launch).attempt == 2
    assert worker.metrics.observed["start_lag_seconds"] == [2], "a retry is no slot that is late"
    assert worker.metrics.observed["run_seconds"] == [7, 1]
    assert worker.metrics.counts["tenant_launches_total", T, "succeeded"] == 1
    assert worker.metrics.counts["tenant_starts_total", T] == 1


def test_extended_claims_are_counted() -> None:
    world = Stepped()
    world.launch()
    world.relay(2)
    worker, _ = taken(world)
    assert worker.metrics.counts["claims_extended_total",] == 0
    world.advance(15)
    worker.heartbeat()
    assert worker.metrics.counts["claims_extended_total",] == 1
