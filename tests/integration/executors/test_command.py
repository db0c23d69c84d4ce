"""The command executor with real processes."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runs import Outcomes, make_run
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.execution import Outcome
from tickrail.executors.command import CommandExecutor, CommandSettings
from tickrail.executors.process import Watcher

CLOCK = SystemClock()
ROOT = os.geteuid() == 0
OWN = pwd.getpwuid(os.geteuid())


@pytest.fixture
def executor() -> Iterator[CommandExecutor]:
    executor = CommandExecutor(CLOCK, CommandSettings(max_concurrency=4, kill_grace=1.0))
    yield executor
    executor.close(0)


def run(executor: CommandExecutor, timeout: float = 30.0, **fields: object) -> Outcome:
    outcomes = Outcomes()
    one = make_run({"command": fields}, timeout=timeout)
    executor.start(one, outcomes.done)
    return outcomes.of(one)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_argv_is_no_shell(executor: CommandExecutor) -> None:
    found = run(executor, argv=["printf", "%s|", "a b", "$HOME", "*"])
    assert found == Outcome(ok=True, outcome="ok", code=0, message="exit 0", body="a b|$HOME|*|")


def test_shell_is_one(executor: CommandExecutor) -> None:
    assert run(executor, shell="echo $((40 + 2)) | tr 4 5").body == "52\n"


def test_the_shell_is_the_one_of_the_environment(executor: CommandExecutor) -> None:
    found = run(executor, shell="[[ a == a ]] && echo $0", env={"SHELL": "/bin/bash"})
    assert (found.ok, found.body) == (True, "/bin/bash\n")


@pytest.mark.parametrize(
    ("shell", "outcome", "code", "certain"),
    [
        ("exit 0", "ok", 0, True),
        ("exit 1", "exit_1", 1, True),
        ("exit 255", "exit_255", 255, True),
        ("no-such-program-here", "exit_127", 127, True),
        ("kill -9 $$", "signal_9", 9, False),
        ("kill -TERM $$", "signal_15", 15, False),
    ],
)
def test_how_it_ends(
    executor: CommandExecutor, shell: str, outcome: str, code: int, certain: bool
) -> None:
    found = run(executor, shell=shell)
    assert (found.outcome, found.code, found.certain) == (outcome, code, certain)
    assert found.ok == (outcome == "ok")
    assert found.retryable


def test_the_end_of_both_outputs_is_kept(executor: CommandExecutor) -> None:
    found = run(executor, shell="seq 1 100000; echo problem >&2; exit 3")
    assert found.body.endswith("99999\n100000\nproblem\n")
    assert len(found.body) == 4096


def test_output_is_made_fit_for_a_text_column(executor: CommandExecutor) -> None:
    found = run(executor, argv=["printf", r"a\0b\377c"])
    assert found.body == "a\ufffdb\ufffdc"


def test_stdin_is_given_and_is_empty_without(executor: CommandExecutor) -> None:
    assert run(executor, argv=["cat"], stdin="line ä\n").body == "line ä\n"
    assert run(executor, argv=["cat"]).body == ""
    assert run(executor, argv=["wc", "-c"], stdin="x" * 500_000).body.strip() == "500000"


def test_the_environment_is_crons_the_targets_and_the_runs(executor: CommandExecutor) -> None:
    outcomes = Outcomes()
    one = make_run(
        {"command": {"argv": ["env"], "env": {"PATH": "/bin:/opt/x", "TEAM": "bil ling"}}},
        trace="00-a-b-01",
    )
    executor.start(one, outcomes.done)
    lines = dict(line.split("=", 1) for line in outcomes.of(one).body.splitlines())
    assert lines == {
        "SHELL": "/bin/sh",
        "PATH": "/bin:/opt/x",
        "HOME": OWN.pw_dir,
        "LOGNAME": OWN.pw_name,
        "USER": OWN.pw_name,
        "TEAM": "bil ling",
        "TICKRAIL_LAUNCH_ID": str(one.launch_id),
        "TICKRAIL_JOB": "nightly",
        "TICKRAIL_JOB_ID": str(one.job_id),
        "TICKRAIL_CLAIM": "4711",
        "TICKRAIL_ATTEMPT": "2",
        "TICKRAIL_SCHEDULED_AT": "2026-03-01T02:00:00Z",
        "TICKRAIL_PAYLOAD": '{"dry":false}',
        "TRACEPARENT": "00-a-b-01",
    }


def test_a_large_payload_is_left_out(executor: CommandExecutor) -> None:
    outcomes = Outcomes()
    one = make_run({"command": {"argv": ["env"]}}, payload="x" * 40_000)
    executor.start(one, outcomes.done)
    assert "TICKRAIL_PAYLOAD" not in outcomes.of(one).body


def test_the_folder(executor: CommandExecutor, tmp_path: Path) -> None:
    assert run(executor, argv=["pwd"], cwd=str(tmp_path)).body == f"{tmp_path}\n"
    assert run(executor, argv=["pwd"]).body == f"{OWN.pw_dir}\n"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"argv": ["/no/such/program"]}, "No such file"),
        ({"argv": ["true"], "cwd": "/no/such/folder"}, "no folder /no/such/folder"),
        ({"argv": ["/etc/passwd"]}, "Permission denied"),
        ({"shell": "true", "env": {"SHELL": "/no/shell"}}, "/no/shell: No such file"),
    ],
)
def test_what_cannot_start_is_certain(
    executor: CommandExecutor, fields: dict[str, object], message: str
) -> None:
    found = run(executor, **fields)
    assert (found.ok, found.outcome, found.certain) == (False, "cannot_start", True)
    assert message in found.message


def test_an_unknown_user_is_refused(executor: CommandExecutor) -> None:
    found = run(executor, argv=["true"], user="no-such-user")
    assert (found.outcome, found.certain, found.retryable) == ("refused_user", True, False)


def test_the_own_user_needs_no_root(executor: CommandExecutor) -> None:
    assert run(executor, argv=["id", "-un"], user=OWN.pw_name).body == f"{OWN.pw_name}\n"


def test_another_user_needs_root(executor: CommandExecutor) -> None:
    found = run(executor, shell="id -un; id -gn; echo $HOME $USER", user="nobody", cwd="/")
    if ROOT:
        entry = pwd.getpwnam("nobody")
        assert found.body.splitlines()[0] == "nobody"
        assert found.body.splitlines()[2] == f"{entry.pw_dir} nobody"
    else:
        assert (found.outcome, found.certain) == ("refused_user", True)


def test_a_timeout_ends_the_whole_group(executor: CommandExecutor, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    found = run(
        executor,
        timeout=0.7,
        shell=f"sleep 300 & echo $! >> {pids}; sleep 300 & echo $! >> {pids}; echo begun; wait",
    )
    assert (found.ok, found.outcome, found.certain) == (False, "timed_out", False)
    assert found.body == "begun\n"
    children = [int(line) for line in pids.read_text().split()]
    assert len(children) == 2
    until(lambda: not any(alive(pid) for pid in children))


def test_who_ignores_sigterm_is_killed_after_the_grace(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    before = CLOCK.monotonic()
    found = run(
        executor,
        timeout=0.3,
        shell=f"trap '' TERM; echo $$ > {pid}; while :; do sleep 0.1; done",
    )
    assert found.outcome == "timed_out"
    assert CLOCK.monotonic() - before >= 1.3
    assert not alive(int(pid.read_text()))


def test_who_heeds_sigterm_may_clean_up(executor: CommandExecutor) -> None:
    found = run(
        executor,
        timeout=0.4,
        shell="trap 'echo cleaned; exit 0' TERM; echo begun; while :; do sleep 0.05; done",
    )
    assert (found.outcome, found.ok) == ("timed_out", False)
    assert found.body.startswith("begun\n")
    assert found.body.endswith("cleaned\n")


def test_cancel_stops_it_with_the_reason(executor: CommandExecutor, tmp_path: Path) -> None:
    outcomes = Outcomes()
    pid = tmp_path / "pid"
    one = make_run(
        {"command": {"shell": f"sleep 300 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"}}
    )
    executor.start(one, outcomes.done)
    until(pid.exists)
    executor.cancel(one, "cancelled")
    found = outcomes.of(one)
    assert (found.outcome, found.certain) == ("cancelled", False)
    until(lambda: not alive(int(pid.read_text())))
    executor.cancel(one, "cancelled")  # ended: ignored


def test_a_run_that_waits_for_a_thread_is_cancelled_as_not_started() -> None:
    executor = CommandExecutor(CLOCK, CommandSettings(max_concurrency=1, kill_grace=1.0))
    outcomes = Outcomes()
    first = make_run({"command": {"argv": ["sleep", "300"]}})
    second = make_run({"command": {"argv": ["true"]}})
    assert executor.free_places == 1
    executor.start(first, outcomes.done)
    assert (executor.free_places, executor.needs_place("")) == (0, True)
    executor.start(second, outcomes.done)
    executor.cancel(second, "cancelled")
    found = outcomes.of(second)
    assert (found.outcome, found.certain) == ("cancelled", True)
    executor.close(0)
    assert (outcomes.of(first).outcome, outcomes.of(first).certain) == ("interrupted", False)
    late = make_run({"command": {"argv": ["true"]}})
    executor.start(late, outcomes.done)
    assert (outcomes.of(late).outcome, outcomes.of(late).certain) == ("interrupted", True)


def test_close_lets_what_ends_in_time_end() -> None:
    executor = CommandExecutor(CLOCK)
    outcomes = Outcomes()
    one = make_run({"command": {"argv": ["sleep", "0.3"]}})
    executor.start(one, outcomes.done)
    executor.close(20)
    assert outcomes.of(one).ok


def test_a_background_child_does_not_hold_the_run_and_lives_on(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    before = CLOCK.monotonic()
    found = run(executor, shell=f"sleep 300 & echo $! > {pid}")
    assert found.ok
    assert CLOCK.monotonic() - before < 10
    child = int(pid.read_text())
    assert alive(child)
    os.kill(child, signal.SIGKILL)


def test_no_file_descriptor_is_left_open(executor: CommandExecutor) -> None:
    run(executor, argv=["true"])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        assert run(executor, argv=["true"]).ok
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_many_at_once_each_ends_once() -> None:
    executor = CommandExecutor(CLOCK, CommandSettings(max_concurrency=8))
    outcomes = Outcomes()
    runs = [make_run({"command": {"shell": f"exit {i % 3}"}}) for i in range(40)]
    for one in runs:
        executor.start(one, outcomes.done)
    assert [outcomes.of(one).code for one in runs] == [i % 3 for i in range(40)]
    executor.close(5)
    assert len(outcomes) == 40


def test_a_killed_worker_takes_its_commands_along(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                import threading
                from tests.support.runs import make_run
                from tickrail.core.clock import SystemClock
                from tickrail.executors.command import CommandExecutor
                executor = CommandExecutor(SystemClock())
                shell = "echo $$ >> {pids}; sleep 300 & echo $! >> {pids}; wait"
                executor.start(make_run({{"command": {{"shell": shell}}}}, timeout=600), print)
                threading.Event().wait()
                """
            ),
        ],
        cwd=Path(__file__).parents[3],
    )
    try:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        children = [int(line) for line in pids.read_text().split()]
        assert all(alive(pid) for pid in children)
        worker.kill()
        worker.wait()
        until(lambda: not any(alive(pid) for pid in children))
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        worker.wait()


def test_a_killed_guard_is_replaced() -> None:
    watcher = Watcher()
    first = subprocess.Popen(["sleep", "300"], start_new_session=True)
    second = subprocess.Popen(["sleep", "300"], start_new_session=True)
    watcher.add(first.pid)
    guard = watcher._process
    assert guard is not None
    guard.kill()
    guard.wait()
    watcher.add(second.pid)
    assert watcher._process is not guard
    watcher.close()  # both are still listed
    assert first.wait(10) == second.wait(10) == -signal.SIGKILL
