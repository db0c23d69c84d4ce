"""One holder for a folder; what a killed holder left is cleaned; ports and data stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tickrail.core.clock import SystemClock
from tickrail.local import state
from tickrail.local.errors import LocalServersError
from tickrail.local.ports import any_free
from tickrail.local.procs import Identity, wait_until
from tickrail.local.stack import LocalStack, running, stop_running

pytestmark = pytest.mark.integration

Hold = Callable[[], "subprocess.Popen[str]"]
HOLD = Path(__file__).parent / "hold.py"


@pytest.fixture
def hold(data_folder: Path) -> Iterator[Hold]:
    """Starts another process that holds the stack of the data folder, and waits until it is up."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, HOLD, data_folder], stdout=subprocess.PIPE, text=True
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline().startswith("127.0.0.1:")
        return child

    yield start
    for child in started:
        child.terminate()
        child.wait(60)
        if child.stdout is not None:
            child.stdout.close()
    stop_running(data_folder)


def servers_of(folder: Path) -> list[Identity]:
    found = state.read(folder)
    assert found is not None
    assert len(found.servers) == 3
    return [one.identity for one in found.servers]


def guard_of(holder: int) -> psutil.Process:
    (guard,) = (
        child
        for child in psutil.Process(holder).children()
        if "tickrail.local.guard" in child.cmdline()
    )
    return guard


def processes_of(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or [])
    ]


def gone(servers: list[Identity], seconds: float = 30.0) -> bool:
    return wait_until(lambda: not any(server.alive() for server in servers), seconds, SystemClock())


def test_a_second_start_is_told_who_holds_the_folder(data_folder: Path, hold: Hold) -> None:
    holder = hold()
    with pytest.raises(LocalServersError, match=rf"in use by process {holder.pid} .*hold\.py"):
        LocalStack(data_folder).start()
    assert all(server.alive() for server in servers_of(data_folder))


def test_servers_end_with_a_killed_holder(data_folder: Path, hold: Hold) -> None:
    holder = hold()
    servers = servers_of(data_folder)
    holder.kill()
    assert gone(servers)
    assert running(data_folder) is None


def test_the_next_start_stops_what_is_left_and_goes_on_with_ports_and_data(
    data_folder: Path, hold: Hold
) -> None:
    holder = hold()
    addresses = running(data_folder)
    assert addresses is not None
    with psycopg.connect(addresses.postgres_dsn) as session:
        session.execute("create table survivor ()")
    servers = servers_of(data_folder)
    guard_of(holder.pid).kill()
    holder.kill()
    holder.wait()
    assert not gone(servers, seconds=0.3)
    with LocalStack(data_folder, fast=True) as stack:
        assert gone(servers, seconds=0)
        assert stack.addresses == addresses
        with psycopg.connect(stack.addresses.postgres_dsn) as session:
            session.execute("select from survivor")
    assert state.read(data_folder) is None


def test_stop_running_stops_the_holder_in_order(data_folder: Path, hold: Hold) -> None:
    holder = hold()
    servers = servers_of(data_folder)
    assert stop_running(data_folder) is True
    assert holder.wait(60) == 0
    assert gone(servers, seconds=0)
    assert stop_running(data_folder) is False


def test_stop_running_stops_what_a_killed_holder_left(data_folder: Path, hold: Hold) -> None:
    holder = hold()
    servers = servers_of(data_folder)
    guard_of(holder.pid).kill()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert stop_running(data_folder) is True
    assert gone(servers, seconds=0)


def test_an_interrupted_start_leaves_nothing(data_folder: Path) -> None:
    child = subprocess.Popen([sys.executable, HOLD, data_folder], stderr=subprocess.DEVNULL)

    def first_server_runs() -> bool:
        found = state.read(data_folder)
        return found is not None and bool(found.servers)

    assert wait_until(first_server_runs, 30.0, SystemClock())
    child.send_signal(signal.SIGINT)
    assert child.wait(60) != 0
    assert state.read(data_folder) is None
    assert processes_of(data_folder) == []


def test_a_server_that_cannot_start_says_why_and_the_others_are_stopped(
    data_folder: Path,
) -> None:
    stack = LocalStack(data_folder, fast=True, demanded_ports={"etcd": any_free()})
    (data_folder / "kafka" / "data").mkdir(parents=True)
    (data_folder / "kafka" / "data" / "meta.properties").write_text("version=1\nnode.id=2\n")
    with pytest.raises(LocalServersError, match=r"Kafka ended while starting.*kafka\.log ends"):
        stack.start()
    assert stack.servers == []
    assert state.read(data_folder) is None
    assert processes_of(data_folder) == []
