"""What commands get, what they may use, and what is seen of them: with real processes."""

from __future__ import annotations

import os
import pwd
import resource
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.runs import Outcomes, make_run
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import Outcome
from tickrail.core.resource_limits import ResourceLimits
from tickrail.executors.command import CommandExecutor, CommandSettings

CLOCK = SystemClock()
ROOT = os.geteuid() == 0
MIB = 1 << 20
LONG = 120.0
"""Seconds; a machine that is busy gives a command little of it."""
TOKEN = b"tr0ub4dor&3-long"


class Secrets:
    """`core.secrets.SecretReader` on a mapping."""

    def __init__(self) -> None:
        self.values = {"token": TOKEN, "raw": b"\xff\xfe", "nul": b"a\x00b"}
        self.asked: list[UUID] = []
        self.down = False

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        self.asked.append(tenant)
        if self.down:
            raise UnavailableError("the database does not answer")
        return {n: self.values[n] for n in names if n in self.values}


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def executor(secrets: Secrets) -> Iterator[CommandExecutor]:
    settings = CommandSettings(
        max_concurrency=4,
        kill_grace=1.0,
        passed={"LANG": "C.UTF-8", "HOME": "/nowhere", "REGION": "eu"},
        limits=ResourceLimits(memory=1024 * MIB, open_files=512),
    )
    executor = CommandExecutor(CLOCK, settings, secrets)
    yield executor
    executor.close(0)


def run(executor: CommandExecutor, tell: Any = None, **fields: Any) -> Outcome:
    outcomes = Outcomes()
    one = make_run({"command": fields}, tell=tell, timeout=LONG)
    executor.start(one, outcomes.done)
    return outcomes.of(one, LONG)


def variables(executor: CommandExecutor, **env: object) -> dict[str, str]:
    found = run(executor, argv=["env"], env=env)
    assert found.ok, found
    return dict(line.split("=", 1) for line in found.body.splitlines())


def test_the_worker_s_variables_pass_on_where_they_are_allowed(executor: CommandExecutor) -> None:
    found = variables(executor, REGION="us")
    assert (found["LANG"], found["HOME"], found["REGION"]) == ("C.UTF-8", "/nowhere", "us")
    assert not {"PWD", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST"} & found.keys()


def test_a_variable_may_be_a_secret_and_is_masked(
    executor: CommandExecutor, secrets: Secrets
) -> None:
    told: list[bytes] = []
    script = 'test "$T" = "tr0ub4dor&3-long" && echo "it is $T"; printf "%s" "$T" | sed "s/-/- /"'
    found = run(executor, told.append, shell=script, env={"T": {"secret": "token"}})
    assert found.ok
    assert found.body == "it is ***\ntr0ub4dor&3- long"
    assert b"".join(told).decode() == found.body
    assert secrets.asked == [UUID(int=1)]


def test_a_secret_printed_in_pieces_is_masked(executor: CommandExecutor) -> None:
    told: list[bytes] = []
    script = 'echo "${T%&3-long}" | tr -d "\\n"; sleep 0.2; echo "&3-long."; echo done'
    found = run(executor, told.append, shell=script, env={"T": {"secret": "token"}})
    assert found.body == "***.\ndone\n"
    assert b"tr0ub" not in b"".join(told)


def test_a_secret_of_any_bytes_reaches_the_command(executor: CommandExecutor) -> None:
    found = run(
        executor,
        argv=["sh", "-c", 'printf %s "$RAW" | od -An -tx1'],
        env={"RAW": {"secret": "raw"}},
    )
    assert found.body.split() == ["ff", "fe"]


@pytest.mark.parametrize(
    ("name", "outcome", "retryable", "says"),
    [
        ("absent", "secret_missing", False, "no secret absent"),
        ("nul", "invalid_secret", False, "NUL"),
    ],
)
def test_a_secret_that_cannot_be_used(
    executor: CommandExecutor, name: str, outcome: str, retryable: bool, says: str
) -> None:
    found = run(executor, argv=["true"], env={"T": {"secret": name}})
    assert (found.outcome, found.certain, found.retryable) == (outcome, True, retryable)
    assert says in found.message


def test_secrets_that_cannot_be_read_now_are_tried_again(
    executor: CommandExecutor, secrets: Secrets
) -> None:
    secrets.down = True
    found = run(executor, argv=["true"], env={"T": {"secret": "token"}})
    assert (found.outcome, found.certain, found.retryable) == ("secrets_unavailable", True, True)
    assert run(executor, argv=["true"]).ok


def test_output_is_told_as_it_comes(executor: CommandExecutor, tmp_path: Path) -> None:
    told: list[bytes] = []
    seen = threading.Event()

    def tell(data: bytes) -> None:
        told.append(data)
        seen.set()

    go = tmp_path / "go"
    outcomes = Outcomes()
    script = f"echo first; while [ ! -e {go} ]; do sleep 0.05; done; seq 1 20000; echo last"
    one = make_run({"command": {"shell": script}}, tell=tell, timeout=LONG)
    executor.start(one, outcomes.done)
    assert seen.wait(LONG)
    assert b"".join(told) == b"first\n"
    assert len(outcomes) == 0
    go.touch()
    assert outcomes.of(one, LONG).ok
    assert b"".join(told) == b"first\n" + b"".join(b"%d\n" % i for i in range(1, 20001)) + b"last\n"


LIMITS = """
import json, resource
print(json.dumps([resource.getrlimit(getattr(resource, "RLIMIT_" + n))[0]
                  for n in ("CPU", "AS", "FSIZE", "NOFILE", "NPROC")]))
"""


def test_a_target_s_limits_and_the_worker_s_hold(executor: CommandExecutor) -> None:
    limits = {"cpu": "7s", "memory": "300MiB", "file_size": "1MiB", "processes": 5000}
    found = run(executor, argv=["python3", "-c", LIMITS], limits=limits)
    assert found.body == f"[7, {300 * MIB}, {MIB}, 512, 5000]\n"
    found = run(executor, argv=["python3", "-c", LIMITS])
    assert found.body == f"[-1, {1024 * MIB}, -1, 512, {_now('NPROC')}]\n"


def _now(name: str) -> int:
    return resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]


def test_more_than_the_worker_allows_is_refused(executor: CommandExecutor) -> None:
    found = run(executor, argv=["true"], limits={"memory": "2GiB"})
    assert (found.outcome, found.certain, found.retryable) == ("refused_limits", True, False)
    assert found.message == "memory 2GiB is above 1GiB, which this worker allows at most"


def test_what_uses_more_ends(executor: CommandExecutor, tmp_path: Path) -> None:
    burn = run(executor, argv=["python3", "-c", "while True: pass"], limits={"cpu": "1s"})
    assert (burn.outcome, burn.certain) == ("signal_24", False)
    assert burn.message == "used more than 1 s of CPU time, its limit"
    eat = run(executor, argv=["python3", "-c", "b = bytes(200 << 20)"], limits={"memory": "100MiB"})
    assert eat.outcome == "exit_1"
    assert "MemoryError" in eat.body
    write = run(executor, shell="exec yes > big", cwd=str(tmp_path), limits={"file_size": "64KiB"})
    assert (write.outcome, write.message) == (
        "signal_25",
        "wrote a file of more than 65536 bytes, its limit",
    )
    assert (tmp_path / "big").stat().st_size == 65536
    opened = "import os\nfor _ in range(100): os.open('/dev/null', os.O_RDONLY)"
    files = run(executor, argv=["python3", "-c", opened], limits={"open_files": 32})
    assert "Too many open files" in files.body


def test_a_limited_command_that_cannot_start_says_why(executor: CommandExecutor) -> None:
    found = run(executor, argv=["/no/such/program"], limits={"cpu": "5s"})
    assert (found.outcome, found.certain) == ("cannot_start", True)
    assert found.message == "/no/such/program: No such file or directory"
    found = run(executor, argv=["/etc/passwd"], limits={"cpu": "5s"})
    assert found.message == "/etc/passwd: Permission denied"


def test_a_limited_command_gets_all_that_others_get(executor: CommandExecutor) -> None:
    script = 'read line; echo "$line $1 $U $PWD $TICKRAIL_JOB"; exit 3'
    found = run(
        executor,
        argv=["sh", "-c", script, "sh", "\u00e4 \U0001f600"],
        env={"U": "\u00fc"},
        stdin="in \u00f6\n",
        cwd="/",
        limits={"cpu": "9s"},
    )
    assert (found.outcome, found.body) == (
        "exit_3",
        "in \u00f6 \u00e4 \U0001f600 \u00fc / nightly\n",
    )


def test_a_limited_command_is_stopped_with_its_group(executor: CommandExecutor) -> None:
    outcomes = Outcomes()
    told: list[bytes] = []
    target = {"shell": "sleep 300 & echo $!; wait", "limits": {"cpu": "9s"}}
    one = make_run({"command": target}, tell=told.append, timeout=LONG)
    executor.start(one, outcomes.done)
    until(lambda: told, LONG)
    executor.cancel(one, "cancelled")
    assert outcomes.of(one, LONG).outcome == "cancelled"
    pid = int(b"".join(told))
    until(lambda: _gone(pid), LONG)


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_limited_command_runs_as_its_user(executor: CommandExecutor) -> None:
    user = "nobody" if ROOT else pwd.getpwuid(os.geteuid()).pw_name
    found = run(executor, argv=["id", "-un"], user=user, cwd="/", limits={"cpu": "5s"})
    assert found.body == f"{user}\n"
    if ROOT:
        groups = run(executor, argv=["id", "-G"], user=user, cwd="/", limits={"cpu": "5s"}).body
        plain = CommandExecutor(CLOCK)
        assert run(plain, argv=["id", "-G"], user=user, cwd="/").body == groups
        plain.close(0)


def test_a_limited_command_has_the_usual_signals(executor: CommandExecutor) -> None:
    found = run(executor, shell="yes | head -n 1; echo ${?}", limits={"cpu": "5s"})
    assert found.body == "y\n0\n"
    blocked = run(executor, argv=["grep", "Sig[BI]", "/proc/self/status"], limits={"cpu": "5s"})
    other = CommandExecutor(CLOCK)
    plain = run(other, argv=["grep", "Sig[BI]", "/proc/self/status"])
    other.close(0)
    assert blocked.body == plain.body
