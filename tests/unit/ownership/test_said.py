"""What ownership says in the log."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from structlog.testing import capture_logs
from tests.support.ownership_world import ALL, Process, World

from tickrail.core.ids import Partition

Make = Callable[..., Process]
P0, P1 = Partition(0), Partition(1)


def said(logs: list[MutableMapping[str, Any]], event: str) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in x.items() if k not in {"event", "log_level"}}
        for x in logs
        if x["event"] == event
    ]


def test_the_log_says_why_ownership_was_lost(world: World, make: Make) -> None:
    a = make("a").step()
    reasons: list[tuple[str, float | None]] = []

    def lose(how: Callable[[], object], seconds: float = 0.5) -> None:
        with capture_logs() as logs:
            how()
            world.run(seconds, a)
        (line,) = said(logs, "ownership lost")
        reasons.append((line["reason"], line.get("process_stood_still_seconds")))
        world.etcd.down = False
        world.run(12, a)
        assert a.owned == ALL

    lose(lambda: world.etcd.end_lease(world.etcd.owners[P0].lease))
    lose(lambda: world.etcd.owners.pop(P1))
    lose(lambda: setattr(world.etcd, "down", True), 10)
    lose(lambda: world.advance(8.6))
    lose(lambda: world.advance(30))
    assert reasons == [
        ("the lease has ended", None),
        ("the owner key of partition 1 is gone or another's", None),
        ("the trust window ended without a renewal", None),
        ("the trust window ended without a renewal", 9.1),
        ("the trust window ended without a renewal", 30.5),
    ]


def test_a_standstill_that_a_renewal_came_after_is_not_blamed(world: World, make: Make) -> None:
    a = make("a").step()
    world.advance(7)
    a.step()
    assert a.owned == ALL
    world.etcd.down = True
    with capture_logs() as logs:
        world.run(10, a)
    (line,) = said(logs, "ownership lost")
    assert "process_stood_still_seconds" not in line


def test_members_that_come_and_go_are_said_once(world: World, make: Make) -> None:
    a = make("a")
    with capture_logs() as logs:
        world.run(2)
        b = make("b")
        world.run(5)
        names = [one.ownership.status().identity for one in (a, b)]
        world.processes.remove(b)
        world.run(12)
    assert said(logs, "members changed") == [
        {"came": [names[0]], "went": [], "members": 1},
        {"came": sorted(names), "went": [], "members": 2},  # b, which sees both at once
        {"came": [names[1]], "went": [], "members": 2},
        {"came": [], "went": [names[1]], "members": 1},
    ]
