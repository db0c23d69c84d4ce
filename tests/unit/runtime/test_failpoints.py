"""Failpoints: off by default, armed by their setting, and round the ports that they name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from tickrail.core.errors import SettingsError
from tickrail.core.execution import Executor
from tickrail.core.ports import OwnerStore, Planner
from tickrail.core.ports_backfill import BackfillStore
from tickrail.core.ports_bus import Consumer, Publisher
from tickrail.core.ports_ownership import Coordinator, FenceStore
from tickrail.core.ports_worker import WorkerStore
from tickrail.runtime.failpoints import POINTS, Failpoints, Inside, Watched
from tickrail_scheduler.build import OWNER_POINTS, RELAY_POINTS
from tickrail_worker.build import EXECUTOR_POINTS

PORTS = {
    "etcd": Coordinator,
    "fence": FenceStore,
    "owner": OwnerStore,
    "relay": Publisher,
    "letters": Publisher,
    "worker": WorkerStore,
    "executor": Executor,
    "consumer": Consumer,
}
SPECIAL = {
    *(i.point for w in (OWNER_POINTS, EXECUTOR_POINTS) for i in w.inside.values()),
    *RELAY_POINTS.result.values(),
    "owner.tick.written",
    "owner.mark_queued.written",
    "worker.claim.written",
    "worker.finish.written",
}


class Store:
    name = "store"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def tick(self, owned: str, planner: Any) -> str:
        self.calls.append(("tick", owned))
        return planner.plan(owned)

    def reap(self, decide: Any) -> str:
        return decide(1)

    def poll(self, timeout: float) -> list[int]:
        return [1] if timeout else []


class Plans:
    def plan(self, what: str) -> str:
        return f"plan of {what}"

    def other(self) -> str:
        return "other"


MORE = Watched(
    inside={
        "tick": Inside("owner.tick.locked", 1, "plan"),
        "reap": Inside("owner.reap.locked", 0),
    },
    result={"poll": "relay.report.after"},
)


def armed(*items: str) -> Failpoints:
    return Failpoints.parse(items)


def acted(logs: list[Any]) -> list[tuple[str, int]]:
    return [(x["point"], x["nth"]) for x in logs if x["event"] == "failpoint"]


def test_without_failpoints_the_ports_are_not_touched() -> None:
    store = Store()
    points = armed()
    assert not points
    assert points.watch(store, "owner", MORE) is store
    assert armed("worker.claim.before=kill").watch(store, "owner", MORE) is store
    assert points.before("owner.reap.locked", store.reap) == store.reap
    points.hit("owner.tick.before")


def test_each_point_is_passed_where_its_name_says() -> None:
    """Before and after the call, inside of it, and after one that brought something."""
    names = ["owner.tick.before", "owner.tick.locked", "owner.tick.after", "owner.reap.locked"]
    names.append("relay.report.after")
    points = armed(*(f"{name}=sleep:0" for name in names))
    store = points.watch(Store(), "owner", MORE)
    assert store.name == "store"
    with capture_logs() as logs:
        assert store.tick("mine", Plans()) == "plan of mine"
        assert acted(logs) == [(n, 1) for n in names[:3]]
        assert store.reap(lambda n: f"verdict {n}") == "verdict 1"
        assert store.poll(0.0) == []
        assert store.poll(1.0) == [1]
    assert acted(logs) == [(n, 1) for n in names]


def test_what_is_called_back_keeps_its_other_methods() -> None:
    class Asks(Store):
        def tick(self, owned: str, planner: Any) -> str:
            return f"{planner.other()} of {owned}"

    points = armed("owner.tick.locked=sleep:0")
    with capture_logs() as logs:
        assert points.watch(Asks(), "owner", MORE).tick("mine", Plans()) == "other of mine"
    assert acted(logs) == []


def test_it_acts_once_at_the_nth_time() -> None:
    points = armed("owner.tick.before=sleep:0@3")
    with capture_logs() as logs:
        for _ in range(6):
            points.hit("owner.tick.before")
    assert acted(logs) == [("owner.tick.before", 3)]


PROGRAM = """
import sys
from tickrail.runtime.failpoints import Failpoints
points = Failpoints.parse([sys.argv[1]])
points.hit("owner.tick.after")
print("went on", flush=True)
"""


def run(item: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, item], stdout=subprocess.PIPE, text=True
    )


def test_kill_ends_the_process_there() -> None:
    with run("owner.tick.after=kill") as process:
        assert process.stdout is not None
        text = process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    assert "went on" not in text
    assert re.search(r"failpoint .*owner\.tick\.after", re.sub(r"\x1b\[[\d;]*m", "", text))


def test_stop_stops_the_process_there_until_it_is_woken() -> None:
    with run("owner.tick.after=stop") as process:
        pid, status = os.waitpid(process.pid, os.WUNTRACED)
        assert (pid, os.WIFSTOPPED(status)) == (process.pid, True)
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.read().endswith("went on\n")
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("owner.tick.after", "POINT=ACTION[@NTH]"),
        ("owner.tick.after=kill@0", "POINT=ACTION[@NTH]"),
        ("owner.tick.after=sleep", "actions: kill, stop, sleep:SECONDS"),
        ("owner.tick.after=explode", "actions: kill, stop, sleep:SECONDS"),
        ("owner.tock.after=kill", "points: etcd.grant.after, etcd.claim.before"),
    ],
)
def test_what_is_not_a_failpoint_is_refused_with_what_there_is(item: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        armed("owner.tick.before=kill", item)
    assert "TICKRAIL_FAILPOINTS" in str(caught.value)
    assert said in str(caught.value)
    assert repr(item.partition("=")[0])[1:-1] in str(caught.value)


def test_a_point_is_given_once() -> None:
    with pytest.raises(SettingsError, match="given twice"):
        armed("owner.tick.before=kill", "owner.tick.before=stop@2")


def test_each_point_is_a_method_of_its_port_or_one_inside_of_it() -> None:
    for point in POINTS:
        port, method, when = point.split(".")
        known = hasattr(PORTS[port], method) or hasattr(BackfillStore, method)
        assert point in SPECIAL or (known and when in {"before", "after"}), point
    assert set(POINTS) >= SPECIAL
    for port, watched in (("owner", OWNER_POINTS), ("executor", EXECUTOR_POINTS)):
        assert all(hasattr(PORTS[port], method) for method in watched.inside)
    assert OWNER_POINTS.inside["tick"].method in vars(Planner)
