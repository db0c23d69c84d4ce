"""The guard: which addresses a webhook may reach.

A tenant writes the URL and the call is made from inside the operator's network, so the guard allows
public addresses and what the operator lists, and nothing else. The name is resolved, every address
of the answer is checked, and the checked address itself is dialled: a name that resolves to
something else a moment later gains nothing. The same check runs when a job is created, where it is
a courtesy; the one at each call is what protects.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem
from tickrail.core.target_webhook import split_url
from tickrail.executors.egress_policy import Address, EgressPolicy, port_of

Resolver = Callable[[str, int], Sequence[str]]

CREATE_TIMEOUT = 2.0
"""Seconds that the check at a job's creation waits for the resolver."""
BATCH_TIMEOUT = 5.0
"""Seconds that the checks of all jobs of one request wait together."""
_EXPECTED = (
    "a host on the public internet, at port 80, 443 or one from 1024 on that is not known for"
    " another service; or what the operator allows"
)
_CACHE_SECONDS = 3.0
_CACHE_NAMES = 4096


class RefusedError(Exception):
    """The guard does not let this call out; `str()` says why, without naming inside addresses."""


class UnresolvedError(Exception):
    """The name has no address."""


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
    if (literal := _literal(host)) is not None:
        found: list[Address] = [literal]
    else:
        found = _resolve_within(host, port, resolver or _system_resolver, timeout)
    if not found and (why := policy.refuse_name(host, port)):
        return [Problem(pointer, f"is refused: {why}", _EXPECTED)]
    for address in found:
        if why := policy.refuse(host, address, port):
            return [Problem(pointer, f"is refused: {why}", _EXPECTED)]
    return []


class UrlChecks:
    """`check_url` for the many URLs of one request: each host once, all within one bound.

    When the time is over, names are accepted without an answer: each call checks again.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        clock: Clock,
        *,
        resolver: Resolver | None = None,
        timeout: float = BATCH_TIMEOUT,
    ) -> None:
        """Checks under a policy; `timeout`: seconds that all of them wait for the resolver."""
        self._policy = policy
        self._clock = clock
        self._resolver = resolver
        self._until = clock.monotonic() + timeout
        self._found: dict[str, list[Problem]] = {}

    def check(self, url: str, pointer: str = "/target/webhook/url") -> list[Problem]:
        """What is wrong with a URL; empty when nothing is."""
        try:
            parts = split_url(url)
        except ValueError as error:
            return [Problem(pointer, "is not a URL that can be called", str(error))]
        origin = f"{parts.scheme}://{parts.netloc}"
        found = self._found.get(origin)
        if found is None:
            left = min(CREATE_TIMEOUT, max(0.0, self._until - self._clock.monotonic()))
            found = check_url(url, self._policy, pointer, resolver=self._resolver, timeout=left)
            self._found[origin] = found
        return found


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
        self._answers: dict[tuple[str, int, EgressPolicy], tuple[float, list[str]]] = {}

    @property
    def policy(self) -> EgressPolicy:
        """The installation's, which holds where a tenant has no lists of its own."""
        return self._policy

    def known(self, host: str, port: int, policy: EgressPolicy | None = None) -> list[str] | None:
        """The addresses found and allowed a moment ago, if there are any; never blocks."""
        kept = self._answers.get((host, port, policy or self._policy))
        return kept[1] if kept is not None and kept[0] > self._clock.monotonic() else None

    def lookup(self, host: str, port: int, policy: EgressPolicy | None = None) -> list[str]:
        """The addresses of a host, all of them allowed. Blocks as long as the resolver does.

        Args:
            host: a name or an address.
            port: where the call goes.
            policy: of the tenant; else the installation's.

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
        held_to = policy or self._policy
        for address in found:
            if why := held_to.refuse(host, address, port):
                raise RefusedError(why)
        if len(self._answers) >= _CACHE_NAMES:
            self._answers.clear()
        checked = [str(a) for a in found]
        self._answers[(host, port, held_to)] = (self._clock.monotonic() + _CACHE_SECONDS, checked)
        return checked


def is_address(host: str) -> bool:
    """Whether a host is an address as it is, so that no name server is asked."""
    return _literal(host) is not None


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
