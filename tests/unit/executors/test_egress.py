"""Hostile addresses in every spelling, and what is let through."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.support.clock import FakeClock

from tickrail.core.errors import SettingsError
from tickrail.executors.egress import (
    EgressGuard,
    RefusedError,
    UnresolvedError,
    check_url,
)
from tickrail.executors.egress_policy import EgressPolicy

NOTHING = EgressPolicy()
PUBLIC = "93.184.216.34"


def system(host: str, port: int) -> list[str]:
    """What the system makes of numeric spellings; names have fixed addresses."""
    names = {
        "localhost": ["127.0.0.1"],
        "public.example": [PUBLIC],
        "public6.example": ["2606:2800:220:1:248:1893:25c8:1946"],
        "mixed.example": [PUBLIC, "10.0.0.5"],
        "scoped.example": ["fe80::1%eth0"],
        "metadata.google.internal": ["169.254.169.254"],
    }
    if host in names:
        return names[host]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [str(item[4][0]) for item in found]


HOSTILE = [
    # numeric spellings of loopback, which the system understands
    "http://127.0.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://0177.0.0.01/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://127.255.255.254:8080/",
    "http://①②⑦.⓪.⓪.①/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://127.0.0.1./",
    # wrapped in IPv6
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a00:1::1]/",
    "http://[2001:0:5ef5:79fb:0:59c:f5ff:fffe]/",
    "http://[2606:2800::5efe:127.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fe81::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00::1]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    # metadata of clouds
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    "http://metadata.google.internal/",
    # other places that are not the internet
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://198.18.0.1/",
    "http://192.0.0.8/",
    "http://192.0.2.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://mixed.example/",
    "http://scoped.example/",
    # tricks of URLs
    "http://user@public.example/",
    "http://public.example@127.0.0.1/",
    "http://user:password@public.example/",
    "http://public.example\\@127.0.0.1/",
    "http://127.0.0.1\\.public.example/",
    "http:\\\\127.0.0.1/",
    "http://public.example /",
    "http://public.example\t/",
    "http://public.example\r\nHost: inside/",
    "http://public.example\x00.inside/",
    "http:///path",
    "http://[::1/",
    "http://public.example:99999/",
    "http://public.example:0/",
    "http://public.example:-1/",
    "//public.example/",
    "file:///etc/passwd",
    "gopher://public.example:70/_x",
    "ftp://public.example/",
    "javascript:alert(1)",
    "dict://public.example:11211/",
    "unix:///var/run/docker.sock",
    # ports of other services
    "http://public.example:22/",
    "http://public.example:25/",
    "http://public.example:2375/",
    "http://public.example:5432/",
    "http://public.example:6379/",
    "http://public.example:11211/",
]


@pytest.mark.parametrize("url", HOSTILE)
def test_hostile_urls_are_refused_at_creation(url: str) -> None:
    (problem,) = check_url(url, NOTHING, resolver=system)
    assert problem.pointer == "/target/webhook/url"
    assert problem.message
    assert problem.expected


@pytest.mark.parametrize(
    "url",
    [
        "http://public.example/",
        "https://public.example/hook?x=%5C#f",
        "https://public.example:8443/",
        "http://public6.example/",
        "http://93.184.216.34:80/",
        "http://[2606:2800:220:1:248:1893:25c8:1946]/",
        "http://[64:ff9b::5db8:d822]/",
        "http://[::ffff:93.184.216.34]/",
        "http://does-not-resolve.example/",
        "http://xn--bcher-kva.example/",
    ],
)
def test_others_are_not(url: str) -> None:
    assert check_url(url, NOTHING, resolver=system) == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "2130706433", "0x7f.1", "::ffff:7f00:1", "mixed.example", "scoped.example"],
)
def test_the_same_is_refused_at_a_call(host: str) -> None:
    guard = EgressGuard(NOTHING, FakeClock(), system)
    with pytest.raises(RefusedError):
        guard.lookup(host, 80)
    assert guard.known(host, 80) is None


def test_a_port_is_refused_at_a_call() -> None:
    guard = EgressGuard(NOTHING, FakeClock(), system)
    with pytest.raises(RefusedError, match="port 6379"):
        guard.lookup("public.example", 6379)


def test_a_name_without_address() -> None:
    guard = EgressGuard(NOTHING, FakeClock(), lambda _h, _p: [])
    with pytest.raises(UnresolvedError):
        guard.lookup("nowhere.example", 80)


def test_a_refusal_does_not_tell_the_inside_address() -> None:
    guard = EgressGuard(NOTHING, FakeClock(), system)
    with pytest.raises(RefusedError) as refused:
        guard.lookup("mixed.example", 80)
    assert "10.0.0.5" not in str(refused.value)


def test_an_answer_is_kept_for_three_seconds_only() -> None:
    clock = FakeClock()
    answers = iter([[PUBLIC], ["10.0.0.1"]])
    guard = EgressGuard(NOTHING, clock, lambda _h, _p: next(answers))
    assert guard.known("public.example", 443) is None
    assert guard.lookup("public.example", 443) == [PUBLIC]
    clock.advance(2.9)
    assert guard.known("public.example", 443) == [PUBLIC]
    assert guard.known("public.example", 80) is None
    clock.advance(0.2)
    assert guard.known("public.example", 443) is None
    with pytest.raises(RefusedError):
        guard.lookup("public.example", 443)


@pytest.mark.parametrize(
    ("allow", "url", "ok"),
    [
        ("127.0.0.0/8", "http://127.0.0.1:8000/", True),
        ("127.0.0.0/8", "http://[::ffff:127.0.0.1]:8000/", True),
        ("127.0.0.0/8", "http://0x7f.1/", True),
        ("127.0.0.0/8", "http://[::1]/", False),
        ("127.0.0.0/8", "http://10.0.0.1/", False),
        ("127.0.0.0/8", "http://127.0.0.1:6379/", False),
        ("127.0.0.1:6379", "http://127.0.0.1:6379/", True),
        ("127.0.0.1:6379", "http://127.0.0.1:6380/", False),
        ("127.0.0.1:6379", "http://127.0.0.1/", False),
        ("[::1]:22", "http://[::1]:22/", True),
        ("::1", "http://[::1]/", True),
        ("10.1.0.0/16,192.168.0.0/24", "http://192.168.0.9/", True),
        ("10.1.0.0/16 192.168.0.0/24", "http://192.168.1.9/", False),
        ("localhost", "http://localhost:8000/", True),
        ("LocalHost", "http://LOCALHOST/", True),
        ("localhost", "http://127.0.0.1/", False),
        ("*.example", "http://mixed.example/", True),
        ("*.example", "http://example/", False),
        ("mixed.example:8080", "http://mixed.example:8080/", True),
        ("mixed.example:8080", "http://mixed.example/", False),
        ("public.example:22", "http://public.example:22/", True),
    ],
)
def test_the_allow_list(allow: str, url: str, ok: bool) -> None:
    def resolver(host: str, port: int) -> list[str]:
        return [] if host == "example" else system(host, port)

    def fixed(host: str, port: int) -> list[str]:
        return resolver(host, port) or ["10.9.9.9"]

    assert (check_url(url, EgressPolicy.parse(allow), resolver=fixed) == []) == ok


@pytest.mark.parametrize("allow", ["10.0.0.0/33", "a b/c", "host:port", "*", "-x", "http://x"])
def test_an_allow_list_that_cannot_be_read(allow: str) -> None:
    with pytest.raises(SettingsError) as refused:
        EgressPolicy.parse(allow)
    assert refused.value.problems


def test_creation_waits_for_the_resolver_within_a_bound() -> None:
    release = threading.Event()

    def slow(_host: str, _port: int) -> list[str]:
        release.wait(30)
        return ["127.0.0.1"]

    assert check_url("http://slow.example/", NOTHING, resolver=slow, timeout=0.05) == []
    release.set()


def test_who_names_a_port_of_another_service_is_told_which_ports_are_none() -> None:
    (problem,) = check_url("http://public.example:6379/", NOTHING, resolver=system)
    assert "port 6379" in problem.message
    assert "port 80, 443 or one from 1024 on" in problem.expected
