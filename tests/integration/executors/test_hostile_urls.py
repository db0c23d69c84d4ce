"""Hostile URLs and redirects through the real executor, past a listener that stands inside.

The listener takes every address of this machine. `public.example` and its like are receivers on
127.0.0.2, which the installation's list allows: the tests' internet. None of the hostile ones may
so much as connect to the listener; the legitimate ones arrive.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from tests.support.clock import FakeClock
from tests.support.receiver import OK_ANSWER, Receiver, Request
from tests.support.runs import Outcomes, make_run

from tickrail.core.clock import SystemClock
from tickrail.core.execution import Outcome
from tickrail.executors.egress import EgressGuard, check_url
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.tenants import NoFacts
from tickrail.executors.webhook import WebhookExecutor

OUTSIDE = "127.0.0.2"
USUAL, LISTED, OTHER = UUID(int=10), UUID(int=11), UUID(int=12)

HOSTILE = [
    # loopback in every spelling that something on the way may understand
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://0x7F.0x0.0x0.0x1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0177.0.0.01:{port}/",
    "http://017700000001:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://00000000:{port}/",
    "http://127.0.0.3:{port}/",
    "http://127.255.255.254:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://127%2e0%2e0%2e1:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::ffff:0:7f00:1]:{port}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:5ef5:79fb:0:59c:80ff:fffe]:{port}/",
    "http://[2606:2800::5efe:127.0.0.1]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://[::1%25lo]:{port}/",
    # names that lead inside
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://localhost.:{port}/",
    "http://inside.example:{port}/",
    "http://INSIDE.example:{port}/",
    "http://mixed.example:{port}/",
    "http://mixed6.example:{port}/",
    "http://wrapped.example:{port}/",
    "http://scoped.example:{port}/",
    "http://metadata.google.internal:{port}/",
    # what belongs to a network, and to nobody outside it
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[fc00::1]/",
    "http://[ff02::1]/",
    # tricks of URLs
    "http://public.example@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@public.example/",
    "http://public.example:80@127.0.0.1:{port}/",
    "http://public.example\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\.public.example/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "http://127.0.0.1:{port}#@public.example/",
    "http://127.0.0.1:{port}?@public.example/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1:{port}\r\nHost: public.example/",
    "http://public.example\x00.127.0.0.1:{port}/",
    "http://[::ffff:127.0.0.1]public.example:{port}/",
    "http://{{ payload.host }}/",
    "http://public.example{{ payload.host }}/",
    "{{ payload.url }}",
    # other protocols, other services
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_GET",
    "dict://127.0.0.1:{port}/x",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "http://public.example:22/",
    "http://public.example:6379/",
    "http://public.example:2375/",
]
MORE_BY_REDIRECT = [
    # relative to http://public.example: what a browser would read as another host
    "///127.0.0.1:{port}/",
    "/\\127.0.0.1:{port}/",
    "\\\\127.0.0.1:{port}/",
    "/\t/127.0.0.1:{port}/",
    "https:127.0.0.1:{port}",
    "@127.0.0.1:{port}/",
    ":{port}",
    "",
    "HTTP://127.0.0.1:{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\x7f",
    # by way of a second receiver that may be called
    "http://second.example:{public}/to?url=http%3A%2F%2F127.0.0.1%3A{port}%2F",
    "/to?status=303&url=http%3A%2F%2F%5B%3A%3A1%5D%3A{port}%2F",
    "/to?status=308&url=%2F%2F2130706433%3A{port}%2F",
]


class Inside:
    """Listens on every address of this machine and counts who comes."""

    def __init__(self) -> None:
        dual = socket.has_dualstack_ipv6()
        self._socket = (
            socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
            if dual
            else socket.create_server(("0.0.0.0", 0))
        )
        self.port: int = self._socket.getsockname()[1]
        self.reached: list[Any] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return
            self.reached.append(peer)
            with connection, connection.makefile("rb") as stream:
                size = 0
                while (line := stream.readline().strip()) != b"":
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.partition(b":")[2])
                stream.read(size)
                connection.sendall(OK_ANSWER)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def redirecting(connection: socket.socket, request: Request) -> bool:
    """Sends on to where the query says."""
    asked = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
    if "url" not in asked:
        connection.sendall(OK_ANSWER)
        return True
    status = asked.get("status", ["302"])[0]
    to = asked["url"][0].encode("latin-1", "replace").replace(b"\r", b"").replace(b"\n", b"")
    connection.sendall(
        b"HTTP/1.1 %s Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
        % (status.encode(), to)
    )
    return True


class Facts(NoFacts):
    """One tenant may call the listener, another nothing but its own partner."""

    def __init__(self, port: int) -> None:
        self._port = port

    def egress(self, tenant: UUID) -> Mapping[str, object] | None:
        if tenant == LISTED:
            return {"allow": [f"127.0.0.1:{self._port}"], "deny": ["second.example"]}
        if tenant == OTHER:
            return {"only": ["partner.example"]}
        return None


@dataclass
class Net:
    """The tests' internet, and what stands inside."""

    inside: Inside
    public: Receiver
    executor: WebhookExecutor
    asked: list[str]

    def call(self, url: str, tenant: UUID = USUAL, **fields: object) -> Outcome:
        outcomes = Outcomes()
        payload = {"host": f"127.0.0.1:{self.inside.port}", "url": self.filled(HOSTILE[0])}
        target = {"webhook": {"url": url, **fields}}
        run = make_run(target, tenant_id=tenant, payload=payload)
        self.executor.start(run, outcomes.done)
        return outcomes.of(run)

    def filled(self, url: str) -> str:
        return url.replace("{port}", str(self.inside.port)).replace(
            "{public}", str(self.public.port)
        )

    def at(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.public.port}{path}"


def resolver(asked: list[str]) -> Any:
    names = {
        "public.example": [OUTSIDE],
        "second.example": [OUTSIDE],
        "partner.example": [OUTSIDE],
        "localhost": ["127.0.0.1"],
        "inside.example": ["127.0.0.1"],
        "mixed.example": [OUTSIDE, "127.0.0.1"],
        "mixed6.example": [OUTSIDE, "::1"],
        "wrapped.example": ["::ffff:127.0.0.1"],
        "scoped.example": ["fe80::1%lo"],
        "metadata.google.internal": ["169.254.169.254"],
    }

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        if host in names:
            return names[host]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [str(item[4][0]) for item in found]

    return resolve


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    asked: list[str] = []
    clock = SystemClock()
    with closing(Inside()) as inside, Receiver(redirecting, address=OUTSIDE) as public:
        guard = EgressGuard(EgressPolicy.parse(f"{OUTSIDE}/32"), clock, resolver(asked))
        executor = WebhookExecutor(guard, clock, facts=Facts(inside.port))
        yield Net(inside, public, executor, asked)
        executor.close(0)


@pytest.mark.parametrize("url", HOSTILE)
def test_a_hostile_url_reaches_nothing_inside(net: Net, url: str) -> None:
    found = net.call(net.filled(url), redirects=5)
    assert not found.ok
    assert found.certain
    assert found.outcome in {"refused_egress", "invalid_target", "dns_failed"}
    assert net.inside.reached == []


@pytest.mark.parametrize("url", HOSTILE + MORE_BY_REDIRECT)
def test_nor_does_a_redirect_to_it(net: Net, url: str) -> None:
    query = "".join(f"%{b:02X}" for b in net.filled(url).encode("latin-1", "replace"))
    before = len(net.public.requests)
    found = net.call(net.at("public.example", f"/to?url={query}"), redirects=5)
    assert net.inside.reached == []
    # Where it was followed at all, it led to the receiver itself once more.
    assert len(net.public.requests) > before
    assert found.outcome in {
        "ok", "refused_egress", "bad_redirect", "too_many_redirects", "bad_response", "dns_failed",
    }  # fmt: skip


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 60
    assert len(set(HOSTILE + MORE_BY_REDIRECT)) == len(HOSTILE + MORE_BY_REDIRECT)


def test_most_hostile_urls_are_refused_when_a_job_is_made(net: Net) -> None:
    policy = EgressPolicy.parse(f"{OUTSIDE}/32")
    passed = [u for u in HOSTILE if not check_url(net.filled(u), policy, resolver=resolver([]))]
    # A placeholder for the host is refused by the target's own reader, before the guard.
    assert [u for u in passed if "{{" not in u] == []


def test_a_name_that_changes_its_address_gains_nothing(net: Net) -> None:
    """Each connection goes to an address that was checked for it; the name is asked once."""
    clock = FakeClock()
    answers = iter([[OUTSIDE], ["127.0.0.1"], ["::ffff:127.0.0.1"]])
    asked: list[str] = []

    def rebinding(host: str, _: int) -> list[str]:
        asked.append(host)
        return next(answers)

    policy = EgressPolicy.parse(f"{OUTSIDE}/32")
    executor = WebhookExecutor(EgressGuard(policy, clock, rebinding), clock)
    changing = Net(net.inside, net.public, executor, asked)
    try:
        url = changing.at("rebinding.example")
        assert changing.call(url).ok
        assert asked == ["rebinding.example"]
        for _ in range(2):
            clock.advance(3.1)
            # Another port, so that no idle connection serves.
            found = changing.call(f"http://rebinding.example:{net.inside.port}/")
            assert found.outcome == "refused_egress"
    finally:
        executor.close(0)
    assert len(asked) == 3
    assert net.inside.reached == []


def test_legitimate_calls_arrive(net: Net) -> None:
    second = f"http%3A%2F%2Fsecond.example%3A{net.public.port}%2Fend"
    for path in ("/", "/to?url=/end", f"/to?url={second}", f"/to?status=307&url={second}"):
        before = len(net.public.requests)
        assert net.call(net.at("public.example", path), redirects=1).ok
        assert len(net.public.requests) == before + (2 if "url=" in path else 1)


def test_lists_of_tenants() -> None:
    """One may call inside, where it was opened for it; what is denied to it stays shut."""
    asked: list[str] = []
    clock = SystemClock()
    with closing(Inside()) as inside, Receiver(redirecting, address=OUTSIDE) as public:
        guard = EgressGuard(EgressPolicy.parse(f"{OUTSIDE}/32"), clock, resolver(asked))
        executor = WebhookExecutor(guard, clock, facts=Facts(inside.port))
        net = Net(inside, public, executor, asked)
        try:
            within = f"http://127.0.0.1:{inside.port}/"
            assert net.call(net.at("second.example")).ok
            assert net.call(within, LISTED).ok
            assert len(inside.reached) == 1
            assert net.call(within).outcome == "refused_egress"
            # The idle connection that another tenant's call has left is not for this one.
            denied = net.call(net.at("second.example"), LISTED)
            assert denied.outcome == "refused_egress"
            assert "denied" in denied.message
            assert net.call(net.at("partner.example"), OTHER).ok
            alone = net.call(net.at("public.example"), OTHER)
            assert alone.outcome == "refused_egress"
            assert len(inside.reached) == 1
        finally:
            executor.close(0)
