"""A real etcd cluster on loopback: members may be killed, frozen, cut off from each other."""

from __future__ import annotations

import http.client
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.etcd_program import etcd
from tests.support.etcd_server import EtcdServer
from tests.support.proxy import TcpProxy
from tests.support.until import until

from tickrail.local.ports import any_free

NOBODY = "0"
_PROBE_SECONDS = 1.0


class EtcdCluster:
    """Members that run from making to `close()`; ready when made.

    Args:
        folder: for their data and logs.
        members: how many; they are numbered from 0.
        options: more of etcd's options, for each member.
        proxied: the members reach each other through `peers`. A member's messages leave on
            connections that the others made to it: `peers[i].blackhole("to_client")` has it hear
            and not be heard, `"both"` on all of them cuts everybody off.
    """

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        *,
        options: Sequence[str] = (),
        proxied: bool = False,
    ) -> None:
        ports = [any_free() for _ in range(members)]
        self.peers = [TcpProxy("127.0.0.1", port) for port in ports] if proxied else []
        seen = [proxy.port for proxy in self.peers] or ports
        urls = [f"http://127.0.0.1:{port}" for port in seen]
        cluster = ",".join(f"m{i}={url}" for i, url in enumerate(urls))
        self.servers = [
            EtcdServer(
                folder / f"m{i}",
                # A killed process loses nothing that it wrote; only a power failure would.
                options=("--unsafe-no-fsync", *options),
                name=f"m{i}",
                peer_port=port,
                peer_url=url,
                cluster=cluster,
            )
            for i, (port, url) in enumerate(zip(ports, urls, strict=True))
        ]
        self._frozen: set[int] = set()
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise

    @property
    def endpoints(self) -> str:
        """All of them, as TICKRAIL_ETCD_ENDPOINTS wants them."""
        return ",".join(server.endpoint for server in self.servers)

    @property
    def version(self) -> str:
        """The version that runs, such as `3.6.16`."""
        return etcd().version

    def leader(self, seconds: float = 30) -> int:
        """The leader's number, once a majority says that it is this one; waits for that."""
        found: list[int] = []

        def agreed() -> bool:
            found[:] = self._led()
            return bool(found)

        until(agreed, seconds, 0.05)
        return found[0]

    def agreeing(self) -> list[int]:
        """The numbers of the members that answer and name the leader that a majority names."""
        said = {i: s["leader"] for i in range(len(self.servers)) if (s := self._status(i))}
        return [i for i, leader in said.items() if leader in self._named(list(said.values()))]

    def followers(self) -> list[int]:
        """The numbers of all others."""
        leader = self.leader()
        return [i for i in range(len(self.servers)) if i != leader]

    def kill(self, i: int) -> None:
        """kill -9, waited for."""
        self.servers[i].kill()
        self._frozen.discard(i)

    def start(self, i: int) -> None:
        """Start a killed member on the data it had; returns when it listens."""
        self.servers[i].start()

    def kill_all(self) -> None:
        """kill -9 for each."""
        for i in range(len(self.servers)):
            self.kill(i)

    def start_all(self) -> None:
        """Start all, none of which runs; returns when they have elected a leader."""
        for server in self.servers:
            server.start(wait=False)
        for server in self.servers:
            server.wait()
        until(lambda: len(self.agreeing()) == len(self.servers), 60, 0.02)

    def copy_data(self, folder: Path) -> None:
        """Keep what the members hold, all of which are killed."""
        for server in self.servers:
            shutil.copytree(server.folder / "data", folder / server.folder.name)

    def replace_data(self, folder: Path | None) -> None:
        """Give the members, all of which are killed, what was copied there; None: nothing."""
        for server in self.servers:
            shutil.rmtree(server.folder / "data")
            if folder is not None:
                shutil.copytree(folder / server.folder.name, server.folder / "data")

    def freeze(self, i: int) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self.servers[i].freeze()
        self._frozen.add(i)

    def thaw(self, i: int) -> None:
        """SIGCONT."""
        self.servers[i].thaw()
        self._frozen.discard(i)

    def close(self) -> None:
        """End all members and delete what they hold."""
        for server in self.servers:
            server.kill()
            shutil.rmtree(server.folder / "data", ignore_errors=True)
        for proxy in self.peers:
            proxy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _led(self) -> list[int]:
        """The member that a majority says is the leader, if it answers itself; else nobody."""
        found = {i: s for i in range(len(self.servers)) if (s := self._status(i))}
        named = self._named([s["leader"] for s in found.values()])
        return [i for i, s in found.items() if s["header"]["member_id"] in named]

    def _named(self, leaders: list[str]) -> list[str]:
        majority = len(self.servers) // 2 + 1
        return [one for one, n in Counter(leaders).items() if n >= majority and one != NOBODY]

    def _status(self, i: int) -> dict[str, Any] | None:
        if i in self._frozen or not self.servers[i].alive:
            return None
        host, _, port = self.servers[i].endpoint.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=_PROBE_SECONDS)
        try:
            connection.request("POST", "/v3/maintenance/status", "{}")
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()
        return {"leader": NOBODY, **found} if answer.status == http.HTTPStatus.OK else None
