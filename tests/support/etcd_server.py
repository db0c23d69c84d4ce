"""A real etcd of a test's own, which may be killed, frozen and restarted."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil
from tests.support.etcd_program import etcd
from tests.support.until import until

from tickrail.local.ports import any_free


def etcd_program() -> str:
    """The etcd that the tests run (tests/support/etcd_program.py)."""
    return str(etcd().path)


class EtcdServer:
    """One member of a cluster (by default the only one), on loopback.

    Args:
        folder: for its data and its log.
        options: more of etcd's options.
        scheme: http or https for clients.
        name: its name in the cluster.
        peer_port: its port for the others; `cluster` names all of them.
        peer_url: where the others reach that port (a proxy's address), unless directly.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: Sequence[str] = (),
        scheme: str = "http",
        name: str = "one",
        peer_port: int | None = None,
        peer_url: str = "",
        cluster: str = "",
    ) -> None:
        self.folder = folder
        self._log: IO[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._port = any_free()
        self.endpoint = f"127.0.0.1:{self._port}"
        client = f"{scheme}://{self.endpoint}"
        peer = f"http://127.0.0.1:{peer_port or any_free()}"
        self._command = [
            etcd_program(),
            *("--name", name),
            *("--data-dir", str(folder / "data")),
            *("--listen-client-urls", client),
            *("--advertise-client-urls", client),
            *("--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer_url or peer),
            *("--initial-cluster", cluster or f"{name}={peer_url or peer}"),
            *("--log-level", "warn"),
            *options,
        ]

    def start(self, *, wait: bool = True) -> EtcdServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            self._command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        until(self._listens, 15)

    def kill(self) -> None:
        """kill -9, waited for."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait(10)
        self.process = None
        if self._log is not None:
            self._log.close()

    def freeze(self) -> None:
        """SIGSTOP; it is stopped on return."""
        self._signal(signal.SIGSTOP)
        until(lambda: self.frozen, 10)

    @property
    def frozen(self) -> bool:
        """Whether it is stopped now."""
        if self.process is None or not self.alive:
            return False
        return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.alive:
            self.process.send_signal(number)
