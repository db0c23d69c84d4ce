"""Where a request comes from: the peer, or what a trusted proxy says of its own peer."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

from tickrail.core.errors import Problem, SettingsError

SETTING: Final = "TICKRAIL_API_TRUSTED_PROXIES"
_MOST_HOPS: Final = 32
_LONGEST: Final = 4096
_IPV6_SITE: Final = 64

Address = IPv4Address | IPv6Address


class TrustedProxies:
    """Networks of proxies whose word is taken for where a request comes from."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        """With these networks (CIDR, or single addresses).

        Raises:
            SettingsError: one of them is none.
        """
        self._networks: list[IPv4Network | IPv6Network] = []
        problems: list[Problem] = []
        for text in networks:
            try:
                self._networks.append(ip_network(text))
            except ValueError as e:
                problems.append(Problem(SETTING, str(e), "networks such as 10.0.0.0/8, fd00::/8"))
        if problems:
            raise SettingsError("The trusted proxies are not right.", problems)

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """The address of who asks.

        The peer, unless it is a trusted proxy: then the right-most address in X-Forwarded-For that
        is not one, since every hop adds its own peer at the right and only what trusted hops have
        added is true. Nothing a client writes there itself is looked at.

        Args:
            peer: the connection's other end; empty where it has no address.
            forwarded: the values of the X-Forwarded-For headers, in their order.
        """
        address = _address(peer)
        if address is None:
            return peer
        hops = ",".join(forwarded)[-_LONGEST:].split(",") if self._trusts(address) else []
        for hop in reversed(hops[-_MOST_HOPS:]):
            if not self._trusts(address):
                break
            found = _address(_bare(hop))
            if found is None:
                break
            address = found
        return str(address)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def site(address: str) -> str:
    """What an address is counted as: of IPv6 the network of 64 bits, which one host may have."""
    found = _address(address)
    if isinstance(found, IPv6Address):
        return str(ip_network((int(found), _IPV6_SITE), strict=False))
    return address


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _bare(hop: str) -> str:
    """The address of a hop, which may have a port and quotes."""
    text = hop.strip().strip('"')
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
