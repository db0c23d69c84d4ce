"""Who may be called: lists of addresses and names, and what counts as public.

An installation allows and denies; an operator may allow and deny more for one tenant, or name the
only places that it may call. What denies wins over what allows.

Ports: 80, 443 and everything from 1024, without those where well-known services live that a line of
HTTP can talk into doing something (databases, caches, brokers, Docker, kubelet). An entry of an
allow list that names a port lifts this for that port.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tickrail.core.documents import type_name
from tickrail.core.errors import Problem, SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

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
_LISTS = ("allow", "deny", "only")
MAX_ENTRIES = 500
"""Of one list."""
_EXPECTED = "a network, an address, a host name or *.domain, perhaps with a port"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a list: a network or a host pattern, and perhaps a port."""

    network: Network | None
    host: str
    port: int | None

    def names(self, host: str, port: int) -> bool:
        """Whether it is a name, and this host's."""
        if self.network is not None or (self.port is not None and self.port != port):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host

    def fits(self, host: str, address: Address | None, port: int) -> bool:
        """Whether it is about this host, at this address."""
        if self.network is None:
            return self.names(host, port)
        if self.port is not None and self.port != port:
            return False
        return any(
            a.version == self.network.version and a in self.network
            for a in ({address, _unwrap(address)} if address is not None else ())
        )


@dataclass(frozen=True, eq=False)
class EgressPolicy:
    """What may be called. Compared by identity: one object for as long as its lists are the same.

    Attributes:
        allowed: called although not public.
        denied: not called, whatever allows it.
        only: where there are any, nothing else is called.
    """

    allowed: tuple[Entry, ...] = ()
    denied: tuple[Entry, ...] = ()
    only: tuple[Entry, ...] = ()

    @classmethod
    def parse(cls, allow: str, deny: str = "") -> EgressPolicy:
        """Read the installation's lists: entries with commas or spaces between.

        An entry is a network (`10.1.0.0/16`), an address (`::1`), a host name (`intranet.example`),
        names under a domain (`*.corp.example`), each but a network optionally with a port
        (`127.0.0.1:6379`, `[::1]:6379`).

        Raises:
            SettingsError: names each entry that cannot be read.
        """
        problems: list[Problem] = []
        found: dict[str, tuple[Entry, ...]] = {}
        for setting, text in (("egress_allow", allow), ("egress_deny", deny)):
            entries: list[Entry] = []
            for entry in text.replace(",", " ").split():
                try:
                    entries.append(_entry(entry.lower()))
                except ValueError:
                    problems.append(Problem(setting, f"{entry!r}", _EXPECTED))
            found[setting] = tuple(entries)
        if problems:
            raise SettingsError("The egress lists cannot be read.", problems)
        return cls(found["egress_allow"], found["egress_deny"])

    def narrowed(self, document: Mapping[str, object] | None) -> EgressPolicy:
        """With a tenant's lists, `{"allow": [...], "deny": [...], "only": [...]}`; itself without.

        Raises:
            ValueError: they cannot be read.
        """
        if not document:
            return self
        if problems := egress_problems(document):
            raise ValueError(f"{problems[0].pointer} {problems[0].message}")
        lists = {name: _entries(document.get(name)) for name in _LISTS}
        return replace(
            self,
            allowed=self.allowed + lists["allow"],
            denied=self.denied + lists["deny"],
            only=lists["only"],
        )

    def refuse_name(self, host: str, port: int) -> str | None:
        """Why a host of unknown address is refused, or None."""
        if any(e.names(host, port) for e in self.denied):
            return f"{host} is denied"
        return self._refuse_port(host, None, port)

    def refuse(self, host: str, address: Address, port: int) -> str | None:
        """Why a call to this address is refused, or None."""
        if any(e.fits(host, address, port) for e in self.denied):
            return f"{host} is denied"
        if self.only and not any(e.fits(host, address, port) for e in self.only):
            return f"{host} is not among what this tenant may call"
        if why := self._refuse_port(host, address, port):
            return why
        if is_public(address) or any(e.fits(host, address, port) for e in self.allowed):
            return None
        return f"{host} is not a public address"

    def _refuse_port(self, host: str, address: Address | None, port: int) -> str | None:
        if port in _WEB_PORTS or (port >= _FIRST_USER_PORT and port not in SERVICE_PORTS):
            return None
        if any(e.port == port and e.fits(host, address, port) for e in self.allowed):
            return None
        return f"port {port} is not one for webhooks"


def egress_problems(document: object, pointer: str = "/egress") -> list[Problem]:
    """What is wrong with a tenant's lists; empty when nothing is."""
    if not isinstance(document, Mapping):
        return [Problem(pointer, f"is {type_name(document)}", "an object with " + _named())]
    problems: list[Problem] = []
    for name, entries in document.items():
        where = f"{pointer}/{name}"
        if name not in _LISTS:
            problems.append(Problem(where, "is not a known field", _named()))
        elif not isinstance(entries, list):
            problems.append(Problem(where, f"is {type_name(entries)}", "a list of entries"))
        elif len(entries) > MAX_ENTRIES:
            problems.append(Problem(where, f"has {len(entries)} entries", f"at most {MAX_ENTRIES}"))
        else:
            for i, entry in enumerate(entries):
                try:
                    _entry(entry.lower() if isinstance(entry, str) else "")
                except ValueError:
                    problems.append(Problem(f"{where}/{i}", f"is {entry!r:.80}", _EXPECTED))
    return problems


def _named() -> str:
    return ", ".join(_LISTS)


def _entries(value: object) -> tuple[Entry, ...]:
    return tuple(_entry(str(e).lower()) for e in value) if isinstance(value, list) else ()


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, whatever it is wrapped in."""
    inner = _unwrap(address)
    if isinstance(inner, ipaddress.IPv4Address):
        return not _inside(inner)
    return inner in _PUBLIC_6 and not any(inner in network for network in _INSIDE_6)


def port_of(scheme: str, port: int | None) -> int:
    """The port of a URL, its scheme's own if it names none."""
    if port is not None:
        return port
    return 443 if scheme == "https" else 80


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


def _entry(entry: str) -> Entry:
    """Read one entry of an allow list.

    Raises:
        ValueError: it cannot be read.
    """
    with contextlib.suppress(ValueError):
        return Entry(ipaddress.ip_network(entry, strict=False), "", None)
    host, _, port = entry.rpartition(":")
    if not host:
        host, port = entry, ""
    number = int(port) if port else None
    with contextlib.suppress(ValueError):
        return Entry(ipaddress.ip_network(host.strip("[]")), "", number)
    if not _HOST.fullmatch(host):
        raise ValueError(entry)
    return Entry(None, host, number)
