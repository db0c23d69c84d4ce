"""Which addresses a webhook may reach.

A tenant writes the URL and the call is made from inside the operator's network, so the guard allows
public addresses and what the operator lists, and nothing else. The name is resolved, every address
of the answer is checked, and the checked address itself is dialled: a name that resolves to
something else a moment later gains nothing. The same check runs when a job is created, where it is
a courtesy; the one at each call is what protects.

Ports: 80, 443 and everything from 1024, without those where well-known services live that a line of
HTTP can talk into doing something (databases, caches, brokers, Docker, kubelet). An entry of the
allow list that names a port lifts this for that port.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, SettingsError
from tickrail.core.target_webhook import split_url

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]

_INSIDE_4 = tuple(
    ipaddress.IPv4Network(n)
    for n in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier NAT, and a cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's host agent, in public space
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_INSIDE_6 = tuple(
    ipaddress.IPv6Network(n)
    for n in (
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
_LOW_32 = (1 << 32) - 1

_WEB_PORTS = frozenset({80, 443})
_FIRST_USER_PORT = 1024
SERVICE_PORTS = frozenset(
    {
        1433, 1521, 2049, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 4369, 5432, 5433, 5672, 5900,
        6000, 6379, 6380, 6443, 6665, 6666, 6667, 6668, 6669, 6697, 9042, 9092, 9093, 9160, 10250,
        10255, 11211, 25672, 26379, 27017, 27018, 27019, 50000,
    }
)  # fmt: skip
"""Ports from 1024 on that are refused."""

_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")
CREATE_TIMEOUT = 2.0
"""Seconds that the check at a job's creation waits for the resolver."""
_CACHE_SECONDS = 3.0
_CACHE_NAMES = 4096


class RefusedError(Exception):
    """The guard does not let this call out; `str()` says why, without naming inside addresses."""


class UnresolvedError(Exception):
    """The name has no address."""


@dataclass(frozen=True)
class _Allowed:
    """One entry of the allow list: a network or a host pattern, and perhaps a port."""

    network: Network | None
    host: str
    port: int | None

    def fits(self, host: str, address: Address | None, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return (
                address is not None
                and address.version == self.network.version
                and address in self.network
            )
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host


@dataclass(frozen=True)
class EgressPolicy:
    """What may be called besides public addresses."""

    allowed: tuple[_Allowed, ...] = ()

    @classmethod
    def parse(cls, text: str) -> EgressPolicy:
        """Read an allow list: entries with commas or spaces between.

        An entry is a network (`10.1.0.0/16`), an address (`::1`), a host name (`intranet.example`),
        names under a domain (`*.corp.example`), each but a network optionally with a port
        (`127.0.0.1:6379`, `[::1]:6379`).

        Raises:
            SettingsError: names each entry that cannot be read.
        """
        allowed: list[_Allowed] = []
        problems: list[Problem] = []
        for entry in text.replace(",", " ").split():
            try:
                allowed.append(_entry(entry.lower()))
            except ValueError:
                problems.append(
                    Problem("", f"{entry!r}", "a network, an address, a host name or *.domain")
                )
        if problems:
            raise SettingsError("The egress allow list cannot be read.", problems)
        return cls(tuple(allowed))

    def refuse_port(self, host: str, address: Address | None, port: int) -> str | None:
        """Why the port is refused, or None."""
        if port in _WEB_PORTS or (port >= _FIRST_USER_PORT and port not in SERVICE_PORTS):
            return None
        if any(a.port == port and a.fits(host, address, port) for a in self.allowed):
            return None
        return f"port {port} is not one for webhooks"

    def refuse(self, host: str, address: Address, port: int) -> str | None:
        """Why a call to this address is refused, or None."""
        if why := self.refuse_port(host, address, port):
            return why
        inner = _unwrap(address)
        if any(
            a.fits(host, address, port) or a.fits(host, inner, port) for a in self.allowed
        ) or is_public(address):
            return None
        return f"{host} is not a public address"


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, whatever it is wrapped in."""
    inner = _unwrap(address)
    if isinstance(inner, ipaddress.IPv4Address):
        return not _inside(inner)
    return inner in _PUBLIC_6 and not any(inner in network for network in _INSIDE_6)


def check_url(
    url: str,
    policy: EgressPolicy,
    pointer: str = "/target/webhook/url",
    *,
    resolver: Resolver | None = None,
    timeout: float = CREATE_TIMEOUT,
) -> list[Problem]:
    """What is wrong with a webhook's URL, asked when a job is made; empty when nothing is.

    A name that does not resolve in time is accepted: it is checked again at each call.
    """
    try:
        parts = split_url(url)
    except ValueError as error:
        return [Problem(pointer, "is not a URL that can be called", str(error))]
    host, port = parts.hostname or "", port_of(parts.scheme, parts.port)
    expected = "a host on the public internet, or one that the operator allows"
    if (literal := _literal(host)) is not None:
        found: list[Address] = [literal]
    else:
        found = _resolve_within(host, port, resolver or _system_resolver, timeout)
    if not found and (why := policy.refuse_port(host, None, port)):
        return [Problem(pointer, f"is refused: {why}", expected)]
    for address in found:
        if why := policy.refuse(host, address, port):
            return [Problem(pointer, f"is refused: {why}", expected)]
    return []


def port_of(scheme: str, port: int | None) -> int:
    """The port of a URL, its scheme's own if it names none."""
    if port is not None:
        return port
    return 443 if scheme == "https" else 80


class EgressGuard:
    """Resolves names for calls and lets checked addresses through. Safe to use from threads."""

    def __init__(
        self, policy: EgressPolicy, clock: Clock, resolver: Resolver | None = None
    ) -> None:
        """A guard.

        Args:
            policy: what is allowed.
            clock: measures how long an answer is kept (three seconds).
            resolver: for tests; else the system's.
        """
        self._policy = policy
        self._clock = clock
        self._resolver = resolver or _system_resolver
        self._answers: dict[tuple[str, int], tuple[float, list[str]]] = {}

    def known(self, host: str, port: int) -> list[str] | None:
        """The addresses found and allowed a moment ago, if there are any; never blocks."""
        kept = self._answers.get((host, port))
        return kept[1] if kept is not None and kept[0] > self._clock.monotonic() else None

    def lookup(self, host: str, port: int) -> list[str]:
        """The addresses of a host, all of them allowed. Blocks as long as the resolver does.

        Raises:
            RefusedError: one of them is not allowed.
            UnresolvedError: there is none.
        """
        found: Sequence[Address]
        if (literal := _literal(host)) is not None:
            found = [literal]
        else:
            try:
                found = _addresses(self._resolver(host, port))
            except (OSError, UnicodeError) as error:
                raise UnresolvedError(f"{host}: {error}") from error
        if not found:
            raise UnresolvedError(f"{host} has no address")
        for address in found:
            if why := self._policy.refuse(host, address, port):
                raise RefusedError(why)
        if len(self._answers) >= _CACHE_NAMES:
            self._answers.clear()
        checked = [str(a) for a in found]
        self._answers[(host, port)] = (self._clock.monotonic() + _CACHE_SECONDS, checked)
        return checked


def _unwrap(address: Address) -> Address:
    """The IPv4 address inside a mapped, NAT64, 6to4 or ISATAP one; others as they are.

    Compatible addresses (::a.b.c.d), Teredo and local NAT64 lie outside what counts as public and
    need no unwrapping.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & _LOW_32)
    elif int(address) >> 32 & _LOW_32 in _ISATAP:
        tail = ipaddress.IPv4Address(int(address) & _LOW_32)
        inner = tail if _inside(tail) else None  # a public tail proves nothing: the outer decides
    return inner or address


def _inside(address: ipaddress.IPv4Address) -> bool:
    return any(address in network for network in _INSIDE_4)


def _entry(entry: str) -> _Allowed:
    """Read one entry of an allow list.

    Raises:
        ValueError: it cannot be read.
    """
    with contextlib.suppress(ValueError):
        return _Allowed(ipaddress.ip_network(entry, strict=False), "", None)
    host, _, port = entry.rpartition(":")
    if not host:
        host, port = entry, ""
    number = int(port) if port else None
    with contextlib.suppress(ValueError):
        return _Allowed(ipaddress.ip_network(host.strip("[]")), "", number)
    if not _HOST.fullmatch(host):
        raise ValueError(entry)
    return _Allowed(None, host, number)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _addresses(names: Sequence[str]) -> list[Address]:
    return [ipaddress.ip_address(name.partition("%")[0]) for name in names]


def _system_resolver(host: str, port: int) -> list[str]:
    """What the system dials for this name, numeric spellings (`0x7f.1`) included."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _resolve_within(host: str, port: int, resolver: Resolver, timeout: float) -> list[Address]:
    """Resolve with a bound; empty when there is no answer. The resolver itself knows no bound."""
    found: list[Address] = []

    def resolve() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.extend(_addresses(resolver(host, port)))

    thread = threading.Thread(target=resolve, name="resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    return list(found)
