"""Programs that tests need and that no package brings: built once from their Go modules.

They are kept in the user's cache folder, by name and version.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tickrail.local.jars import cache_dir

BUILD_WITHIN = 600.0
"""Seconds; a minute or two on two cores, more where Go first gets itself a newer toolchain."""


class NotBuiltError(Exception):
    """There is no program of our own building; the message says why."""


@dataclass(frozen=True)
class GoProgram:
    """A program and where it is from.

    Attributes:
        name: of the executable.
        package: its main package, in the Go module whose version is asked for.
        version: without the `v`.
        variables: package variables that its own builds set, too, such as its version.
    """

    name: str
    package: str
    version: str
    variables: tuple[tuple[str, str], ...] = ()

    def build(self) -> Path:
        """The executable in the cache folder, built if it is not there.

        Raises:
            NotBuiltError: Go is not on this machine, or the build failed.
        """
        folder = cache_dir() / f"{self.name}-{self.version}"
        program = folder / self.name
        if program.exists():
            return program
        go = shutil.which("go")
        if go is None:
            raise NotBuiltError("there is no `go` on the PATH to build a newer one")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time(folder / "lock"):
                if not program.exists():
                    self._build(go, program)
        except OSError as error:
            raise NotBuiltError(f"{folder} cannot be used ({error})") from error
        return program

    def _build(self, go: str, program: Path) -> None:
        sets = " ".join(f"-X {name}={value}" for name, value in self.variables)
        with tempfile.TemporaryDirectory(dir=program.parent) as name:
            work = Path(name)
            # A module that needs the program's: its own cannot be built from outside.
            for command in (
                ("mod", "init", "built"),
                ("get", f"{self.package}@v{self.version}"),
                ("build", "-ldflags", f"-s -w {sets}", "-o", "program.new", self.package),
            ):
                _run(go, command, work)
            (work / "program.new").replace(program)


def _run(go: str, command: tuple[str, ...], work: Path) -> None:
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
        raise NotBuiltError(f"`go {command[0]}` took longer than {BUILD_WITHIN} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotBuiltError(
            f"`go {' '.join(command)}` failed: {said[-1] if said else 'it said nothing'}"
        )


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
