from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.local.conftest import Pretend

from tickrail.core.clock import SystemClock
from tickrail.local import guard, procs, state
from tickrail.local.procs import Identity
from tickrail.local.state import Running, RunState


@pytest.fixture
def ended_pipe() -> Iterator[int]:
    """The reading end of a pipe that nobody writes to any more."""
    reading, writing = os.pipe()
    os.close(writing)
    yield reading
    os.close(reading)


def note(folder: Path, *servers: subprocess.Popen[str], holder: Identity | None = None) -> RunState:
    """A state file as a holder that is gone has left it."""
    written = RunState(
        holder=holder or Identity(2**22 - 1, 1.0),
        servers=[
            Running("one", Path(str(child.args[0])).name, Identity.of(child.pid))  # type: ignore[index]
            for child in servers
        ],
        folders=[str(folder / "data")],
    )
    state.write(folder, written)
    return written


def test_the_state_file_reads_back_and_is_private(tmp_path: Path, pretend: Pretend) -> None:
    written = note(tmp_path, pretend("etcd"))
    assert state.read(tmp_path) == written
    assert (tmp_path / state.STATE_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", '{"holder": 1}', '{"holder": {"pid": 1}}'])
def test_a_broken_state_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / state.STATE_FILE).write_text(text)
    assert state.read(tmp_path) is None


def test_what_a_killed_holder_left_is_stopped_kafka_first(tmp_path: Path, pretend: Pretend) -> None:
    servers = [pretend(name) for name in ("postgres", "etcd", "java")]
    left = note(tmp_path, *servers)
    assert [one.program for one in state.leftovers(left)] == ["java", "etcd", "postgres"]
    state.stop_leftovers(left, SystemClock())
    ends = [child.wait(10) for child in servers]
    assert ends == [-signal.SIGINT, -signal.SIGTERM, -signal.SIGTERM]
    assert state.leftovers(left) == []


def test_a_server_that_was_not_written_down_yet_is_known_by_its_folder(
    tmp_path: Path, pretend: Pretend
) -> None:
    forgotten = pretend("etcd", f"--data-dir={tmp_path / 'data'}")
    stranger = pretend("etcd", "--data-dir=/elsewhere")
    editor = pretend("vim", str(tmp_path / "data"))
    state.stop_leftovers(note(tmp_path), SystemClock())
    assert forgotten.wait(10) == -signal.SIGTERM
    assert stranger.poll() is None
    assert editor.poll() is None


def test_a_process_that_got_the_pid_of_an_old_server_is_left_alone(pretend: Pretend) -> None:
    innocent = pretend("etcd")
    older = Identity(innocent.pid, Identity.of(innocent.pid).created - 60)
    left = RunState(Identity(2**22 - 1, 1.0), [Running("etcd", "etcd", older)], {}, ["/nowhere"])
    assert state.stop_leftovers(left, SystemClock()) == []
    assert innocent.poll() is None


def test_a_frozen_server_is_thawed_and_stopped(pretend: Pretend) -> None:
    child = pretend("etcd")
    child.send_signal(signal.SIGSTOP)
    procs.stop(Identity.of(child.pid), [(signal.SIGTERM, 10.0)], SystemClock())
    assert child.wait(10) == -signal.SIGTERM


def test_a_server_that_does_not_listen_is_killed(pretend: Pretend) -> None:
    child = pretend("etcd", "stubborn")
    plan = [(signal.SIGTERM, 0.1), (signal.SIGINT, 0.1)]
    procs.stop(Identity.of(child.pid), plan, SystemClock())
    assert child.wait(10) == -signal.SIGKILL


def test_the_guard_stops_what_its_holder_left_at_the_end_of_the_pipe(
    tmp_path: Path, pretend: Pretend, ended_pipe: int
) -> None:
    child = pretend("etcd")
    holder = Identity(2**22 - 1, 1.0)
    note(tmp_path, child, holder=holder)
    assert guard.watch(tmp_path, holder, ended_pipe) == ["one"]
    assert child.wait(10) == -signal.SIGTERM


def test_the_guard_leaves_a_later_holder_alone(
    tmp_path: Path, pretend: Pretend, ended_pipe: int
) -> None:
    child = pretend("etcd")
    note(tmp_path, child, holder=Identity(4242, 2.0))
    assert guard.watch(tmp_path, Identity(4242, 1.0), ended_pipe) == []
    assert child.poll() is None


def test_the_guard_has_nothing_to_do_after_an_orderly_stop(tmp_path: Path, ended_pipe: int) -> None:
    assert guard.watch(tmp_path, Identity(4242, 1.0), ended_pipe) == []
