"""Ownership under random faults: never two owners, and one for each partition in the end."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.support.ownership_world import ALL, Process, World

CALLS = ["grant", "renew", "put_member", "claim", "release", "snapshot", "revoke", "remove_member"]
SEEDS = 150


def fault(world: World, rng: random.Random) -> None:
    """One thing that goes wrong, or right again."""
    one = rng.choice(world.processes)
    faults: dict[str, Callable[[], object]] = {
        "etcd down": lambda: setattr(world.etcd, "down", True),
        "etcd up": lambda: setattr(world.etcd, "down", False),
        "one cut off": lambda: setattr(one.coordinator, "cut", True),
        "one joined again": lambda: setattr(one.coordinator, "cut", False),
        "database down": lambda: setattr(world.store, "down", True),
        "database up": lambda: setattr(world.store, "down", False),
        "call fails": lambda: one.coordinator.fail_next.append(rng.choice(CALLS)),
        "answer lost": lambda: one.coordinator.lose_reply.append(rng.choice(CALLS)),
        "request late": lambda: one.coordinator.before.__setitem__(
            rng.choice(CALLS), lambda: world.advance(rng.uniform(0, 6))
        ),
        "answer late": lambda: one.coordinator.after.__setitem__(
            rng.choice(CALLS), lambda: world.advance(rng.uniform(0, 6))
        ),
        "clock set": lambda: one.clock.jump(rng.choice([-5, 5])),
        "clock right": lambda: one.clock.set_now(world.clock.now()),
        "loops stuck": lambda: setattr(one, "healthy", False),
        "loops turn": lambda: setattr(one, "healthy", True),
        "polite stop": lambda: leave(world, one, polite=True),
        "kill": lambda: leave(world, one, polite=False),
        "start": lambda: world.process(f"p{rng.getrandbits(20):x}"),
        "long pause": lambda: world.advance(rng.uniform(5, 15)),
        "new leader": lambda: [
            setattr(lease, "ends_at", world.clock.monotonic() + lease.ttl)
            for lease in world.etcd.leases.values()
        ],
    }
    faults[rng.choice(list(faults))]()


def leave(world: World, one: Process, *, polite: bool) -> None:
    if len(world.processes) > 1:
        world.processes.remove(one)
        if polite:
            one.ownership.stop()


def repair(world: World) -> None:
    world.etcd.down = world.store.down = False
    for one in world.processes:
        one.coordinator.cut = False
        one.coordinator.fail_next.clear()
        one.coordinator.lose_reply.clear()
        one.coordinator.before.clear()
        one.coordinator.after.clear()
        one.healthy = True
        one.clock.set_now(world.clock.now())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_never_two_owners_and_one_in_the_end(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for i in range(3):
        world.process(f"p{i}")
    for _ in range(120):
        if rng.random() < 0.25:
            fault(world, rng)
        world.advance(rng.uniform(0, 1))
        one = rng.choice(world.processes)
        if rng.random() < 0.5:
            one.ownership.renew_once()
        else:
            one.step()
        world.check()
    repair(world)
    world.run(60, every=0.5)
    assert set().union(*(one.owned for one in world.processes)) == ALL
    assert world.etcd.members.keys() == {one.ownership.status().identity for one in world.processes}
