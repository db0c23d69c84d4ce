"""Turns cross: what one process does between two calls of another may be half of its own turn."""

from __future__ import annotations

import random

from tests.simulation.kernel import Kernel, Process, SimClock


def order_of_calls(seed: int) -> str:
    """Two processes make two calls each; in which order."""
    kernel, calls = Kernel(str(seed), noise=1.0), []
    for name in ("a", "b"):
        process = Process(name, SimClock(kernel), random.Random(f"{seed}/{name}"))

        def turn(process: Process = process) -> float:
            for number in (1, 2):
                kernel.before(process, "call", "db")
                calls.append(f"{process.name}{number}")
                kernel.after(process, "call")
            return 1000.0

        kernel.spawn(process, "loop", turn)
    kernel.run(10.0)
    kernel.close()
    return " ".join(calls)


def test_every_order_of_two_calls_of_two_turns_is_found() -> None:
    found = {order_of_calls(seed) for seed in range(300)}
    assert found == {
        "a1 a2 b1 b2", "b1 b2 a1 a2",
        "a1 b1 b2 a2", "b1 a1 a2 b2",
        "a1 b1 a2 b2", "b1 a1 b2 a2",
    }  # fmt: skip


def test_the_same_seed_gives_the_same_order() -> None:
    for seed in range(20):
        assert order_of_calls(seed) == order_of_calls(seed)


def test_turns_that_still_wait_at_the_end_are_given_up() -> None:
    kernel, after = Kernel("1", noise=0.0), []
    process = Process("a", SimClock(kernel), random.Random(1))

    def turn() -> float:
        try:
            kernel.sleep(process, 50.0)
        finally:
            after.append("given up")
        after.append("went on")
        return 0.0

    kernel.spawn(process, "loop", turn)
    kernel.run(10.0)
    assert after == []
    kernel.close()
    assert after == ["given up"]
