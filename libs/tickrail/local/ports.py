"""Which TCP ports the local servers listen on.

The usual port where it is free, else a free one; what was chosen is kept in the data folder and
chosen again at the next start, so that addresses in other people's settings stay true.
"""

from __future__ import annotations

import itertools
import json
import random
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tickrail.local.errors import LocalServersError

LOOPBACK = "127.0.0.1"
"""The only address that a local server listens on."""

MAX_PORT = 65535


@dataclass(frozen=True)
class Ports:
    """One port for each listener, all on loopback."""

    postgres: int
    etcd: int
    etcd_peer: int
    kafka: int
    kafka_controller: int


USUAL = Ports(postgres=5432, etcd=2379, etcd_peer=2380, kafka=9092, kafka_controller=9093)
NAMES = tuple(field.name for field in fields(Ports))


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def choose(
    file: Path, demanded: Mapping[str, int] | None = None, *, prefer_usual: bool = True
) -> Ports:
    """The ports for this start, written to the file for the next one.

    Args:
        file: where the last choice is kept; need not exist.
        demanded: ports that must be these, by the names of `Ports`.
        prefer_usual: try the servers' well-known ports before any free one.

    Raises:
        LocalServersError: a demanded port is in use, not a port, or not a listener's name.
    """
    demanded = dict(demanded or {})
    _check(demanded)
    remembered = _read(file)
    chosen: dict[str, int] = {}
    for name in NAMES:
        if name in demanded:
            chosen[name] = demanded[name]
            continue
        wishes = [remembered.get(name)]
        if prefer_usual:
            wishes.append(getattr(USUAL, name))
        taken = set(chosen.values()) | set(demanded.values())
        chosen[name] = next(
            (port for port in wishes if port and port not in taken and is_free(port)), 0
        ) or any_free(taken)
    ports = Ports(**chosen)
    file.write_text(json.dumps(asdict(ports), indent=1) + "\n")
    return ports


def _check(demanded: Mapping[str, int]) -> None:
    """Each demanded port is one, is asked for once and is free."""
    for name, port in demanded.items():
        if name not in NAMES:
            raise LocalServersError(f"there is no port named {name!r}; names: {', '.join(NAMES)}")
        if not 0 < port <= MAX_PORT:
            raise LocalServersError(f"the port for {name} is {port}; it must be 1 to {MAX_PORT}")
        if list(demanded.values()).count(port) > 1:
            raise LocalServersError(f"port {port} was asked for more than once")
        if not is_free(port):
            raise LocalServersError(
                f"port {port}, asked for {name}, is in use on {LOOPBACK};"
                " stop what listens there or leave the choice to tickrail"
            )


def _read(file: Path) -> dict[str, int]:
    """The last choice; nothing where there is none or it cannot be read."""
    try:
        stored = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(stored, dict):
        return {}
    return {k: v for k, v in stored.items() if k in NAMES and isinstance(v, int)}


def any_free(taken: Collection[int] = ()) -> int:
    """A port that a server could listen on now and that is not among these.

    It lies below the range from which the system takes ports for outgoing connections: one from
    that range could be taken by any connection between this answer and the server's start, or
    while the server is down. In one process none is given twice before all were.

    Raises:
        LocalServersError: no port is free.
    """
    for _ in range(_LAST_OWN - _FIRST_OWN + 1):
        port = next(_own)
        if port not in taken and is_free(port):
            return port
    raise LocalServersError(f"no port from {_FIRST_OWN} to {_LAST_OWN} is free on {LOOPBACK}")


def _first_of_the_system(file: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> int:
    """The lowest port that the system gives to outgoing connections; Linux's default elsewhere."""
    try:
        return int(file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768


def _from_anywhere(first: int, last: int) -> Iterator[int]:
    """Each of these in turn, for ever, from a place chosen by chance.

    Two processes that look for ports at one time do not find the same.
    """
    ports = range(first, last + 1)
    start = random.randrange(len(ports))  # noqa: S311 - spreads processes, keeps no secret
    return itertools.cycle([*ports[start:], *ports[:start]])


_FIRST_OWN = 10_000
_LAST_OWN = max(_first_of_the_system() - 1, _FIRST_OWN + 2_000)
"""Where the system's range begins lower still, two thousand ports of it must do."""
_own = _from_anywhere(_FIRST_OWN, _LAST_OWN)
