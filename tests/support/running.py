"""`tickrail up` as a user runs it: started, looked into, killed in parts, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import psutil
import psycopg
from psycopg import conninfo
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.local.state import STATE_FILE
from tickrail.sdk.client import Client

CLOCK = SystemClock()
PARTITIONS = 8
UP_WITHIN = 150.0
"""Seconds that a start may take, on a machine that does other things too."""
STOP_WITHIN = 90.0


class Running:
    """One `tickrail up` on a data folder, from entering to leaving."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._arguments = arguments
        self.lines: list[str] = []
        self.shown: list[str] = []

    def __enter__(self) -> Self:
        # A variable of the tests' own surroundings is not to reach it.
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")}
        self._environment = {**clean, "TICKRAIL_DATA_DIR": str(self.folder)}
        self._process = subprocess.Popen(
            [
                *(*_TICKRAIL, "up", "--partitions", str(PARTITIONS), "--log-format", "json"),
                *self._arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            cwd=self.folder,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=_read, args=(stream, into), daemon=True)
            for stream, into in (
                (self._process.stdout, self.shown),
                (self._process.stderr, self.lines),
            )
        ]
        for reader in self._readers:
            reader.start()
        try:
            until(lambda: self._told() or self._process.poll() is not None, UP_WITHIN)
            assert self._told(), "\n".join(self.lines[-40:])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def processes(self) -> dict[str, int]:
        """The pids of API, schedulers and workers by name."""
        found = json.loads((self.folder / "processes.json").read_text())
        return {one["name"]: one["pid"] for one in found}

    def everything(self) -> list[int]:
        """The pids of all that runs, servers too, without `up` itself."""
        servers = json.loads((self.folder / STATE_FILE).read_text())["servers"]
        return [*self.processes().values(), *(one["identity"]["pid"] for one in servers)]

    def kill(self, name: str) -> None:
        """kill -9 one process, and see it started again."""
        pid = self.processes()[name]
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.processes()[name] != pid, 30)

    def cli(self, *arguments: str) -> str:
        """Run the command line against it; what it printed."""
        done = subprocess.run(
            [*_TICKRAIL, *arguments],
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def worker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one more worker, which is to end by itself."""
        addresses = json.loads((self.folder / STATE_FILE).read_text())["addresses"]
        dsn = conninfo.make_conninfo(addresses["postgres_dsn"], dbname="tickrail")
        return subprocess.run(
            [
                *(*_TICKRAIL, "worker", "--database-url", dsn),
                *("--kafka-bootstrap", addresses["kafka_bootstrap"]),
                *arguments,
            ],
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def client(self) -> Client:
        """A client with the key that the screen shows."""
        words = "\n".join(self.shown).split()
        return Client(words[words.index("API") + 1], words[words.index("Key") + 1])

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """What the database holds, past all row security."""
        addresses = json.loads((self.folder / STATE_FILE).read_text())["addresses"]
        dsn = conninfo.make_conninfo(addresses["postgres_dsn"], dbname="tickrail")
        with psycopg.connect(dsn) as conn:
            conn.execute("set time zone 'UTC'")
            return conn.execute(sql, list(values)).fetchall()  # type: ignore[arg-type]

    def stop(self, number: signal.Signals) -> None:
        """Send `up` a signal and wait until it and all that it started has ended."""
        pids = self.everything()
        self._process.send_signal(number)
        code = self._process.wait(STOP_WITHIN)
        assert code == (0 if number != signal.SIGKILL else -signal.SIGKILL), self.lines[-20:]
        until(lambda: not any(_runs(pid) for pid in pids), STOP_WITHIN)

    def _told(self) -> bool:
        return any(line.startswith("Stop with") for line in self.shown)

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_WITHIN)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(10)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        # pytest shows it where a test failed.
        shown = [line for line in self.lines if '"level":"info"' not in line]
        sys.stdout.write("\n".join(shown)[-20_000:])
        self._process.stdout.close()
        self._process.stderr.close()


_TICKRAIL = (sys.executable, "-P", "-m", "tickrail_cli")


@contextmanager
def data_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's user can enter when we are root; deleted afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tickrail-e2e-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        outside = folder / "postgres"
        if outside.is_symlink():
            shutil.rmtree(outside.resolve(), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def launches_of(up: Running, job: UUID) -> Mapping[datetime, tuple[str, str, int]]:
    """The launch records of a job: slot -> (id, state, attempt); no slot is there twice."""
    rows = up.rows(
        "select scheduled_at, id::text, state, attempt from launches where job_id = %s", [job]
    )
    found = {row[0]: (row[1], row[2], row[3]) for row in rows}
    assert len(found) == len(rows), "a slot has two records"
    return found


def _read(stream: Any, into: list[str]) -> None:
    with contextlib.suppress(ValueError):
        into.extend(iter_lines(stream))


def iter_lines(stream: Any) -> Iterator[str]:
    for line in stream:
        yield line.rstrip("\n")


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
