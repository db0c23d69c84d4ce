"""C-13: owners die in the middle of what is due; the next one has every schedule."""

from __future__ import annotations

from datetime import timedelta

from tests.support.stepped_owner import Process, join, settle

from tickrail.core.policies import CatchUpOrder

MINUTE = timedelta(minutes=1)
CHANGES = 5
TTL, LIST_EVERY = 10.0, 5.0


def test_c13_slots_around_a_death_are_launched_once_and_all_schedules_go_on(
    process: Process,
) -> None:
    world = process.world
    start = world.clock.now().replace(microsecond=0) + timedelta(seconds=5)
    late = {"policy": "fire_all", "grace": "5s", "order": CatchUpOrder.OLDEST.value}
    jobs = {
        start + after: world.job(
            partition=n,
            overlap="allow",
            misfire=late,
            schedule={"every": "1m", "anchor": (start + after).isoformat()},
        )
        for n, after in enumerate((timedelta(0), timedelta(seconds=1)))
    }
    for change in range(CHANGES):
        at = start + change * MINUTE
        process.wait((at - world.clock.now()).total_seconds() + 0.5)
        process.loop.wake()
        settle(process)  # the first job's slot; then this process is never stepped again
        died = world.clock.now()
        process = join(world, process.etcd, f"s-{change + 2}")
        settle(process)
        assert (world.clock.now() - died).total_seconds() <= TTL + LIST_EVERY
        for first, job in jobs.items():
            launched = [row.scheduled_at for row in world.launches(job)]
            assert launched == [first + n * MINUTE for n in range(change + 1)]
            assert world.db.jobs[job].next_run_at == first + (change + 1) * MINUTE
    epochs = [row.epoch for row in world.launches(jobs[start])]
    assert epochs == sorted(set(epochs)), "each was launched by another owner"
