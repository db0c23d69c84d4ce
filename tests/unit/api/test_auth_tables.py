"""Who is let in: forms of keys, addresses behind proxies, failures by address."""

from __future__ import annotations

import pytest
from tests.support.clock import FakeClock

from tickrail.core.errors import SettingsError
from tickrail.core.keys import checksum, parse_token
from tickrail.store.keys import make_key, secret_hash
from tickrail_api.addresses import TrustedProxies, site
from tickrail_api.guard import Guard

OLD = b"trk_45s3mqrpn44coxpe_abcdefghijklmnopqrstuvwxyz0123456789ABC-_-_"
PROXIES = ("10.0.0.0/8", "fd00::/8")


def test_a_new_key_has_a_checksum_that_is_told_without_asking() -> None:
    made = make_key(b"pepper")
    parsed = parse_token(made.token.encode())
    assert parsed is not None
    key_id, secret = parsed
    assert (key_id, len(secret)) == (made.id, 49)
    assert secret_hash(key_id, secret, b"pepper") == made.secret_hash
    assert secret_hash(key_id, secret, b"other") != made.secret_hash
    for place in (5, len(made.token) - 20, len(made.token) - 1):
        other = "b" if made.token[place] != "b" else "c"
        changed = made.token[:place] + other + made.token[place + 1 :]
        assert parse_token(changed.encode()) is None


def test_the_checksum_is_fixed() -> None:
    assert checksum("45s3mqrpn44coxpe", "A" * 43) == "4Ju9RF"


def test_a_key_of_before_checksums_stays_valid() -> None:
    assert parse_token(OLD) == ("45s3mqrpn44coxpe", OLD.decode()[-43:])


@pytest.mark.parametrize(
    "token",
    [
        b"", b"\xe9", "🔑".encode(), b"trk_", b"trk__", b"trk_a_b", OLD[:-1], OLD + b"x",
        OLD.upper(), OLD.replace(b"trk", b"tkr"), OLD + b"\x00", OLD + b"\n", b"x" * 1_000_000,
        b"trk_" + b"a" * 1_000_000, OLD.replace(b"-", b"\xe9"), OLD.replace(b"-", b"+"),
    ],
)  # fmt: skip
def test_what_is_no_key(token: bytes) -> None:
    assert parse_token(token) is None


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        # A peer that is no proxy: what it says of others counts for nothing.
        ("203.0.113.9", ["9.9.9.9"], "203.0.113.9"),
        ("203.0.113.9", ["10.0.0.1"], "203.0.113.9"),
        # A proxy: the right-most that is none.
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["9.9.9.9, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["9.9.9.9", "198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["9.9.9.9, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        # What is no address ends the walk at the last hop that is one.
        ("10.0.0.1", ["9.9.9.9, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["9.9.9.9, nonsense, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
        ("10.0.0.1", ['"[2001:db8::1]:4711"'], "2001:db8::1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:203.0.113.9", ["198.51.100.7"], "203.0.113.9"),
        ("fe80::1%eth0", ["198.51.100.7"], "fe80::1"),
        ("", ["198.51.100.7"], ""),
        ("10.0.0.1", [", ".join(["10.0.0.2"] * 100_000) + ", 198.51.100.7"], "198.51.100.7"),
    ],
)
def test_where_a_request_comes_from(peer: str, forwarded: list[str], client: str) -> None:
    assert TrustedProxies(PROXIES).client(peer, forwarded) == client


def test_without_trusted_proxies_the_peer_is_who_asks() -> None:
    assert TrustedProxies().client("10.0.0.1", ["9.9.9.9"]) == "10.0.0.1"


def test_a_network_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="TRUSTED_PROXIES"):
        TrustedProxies(["10.0.0.0/8", "10.0.0.1/8"])


def test_ipv6_counts_by_its_network() -> None:
    assert site("2001:db8:1:2:3:4:5:6") == site("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert site("2001:db8:1:3::9") != site("2001:db8:1:2::9")
    assert site("203.0.113.9") == "203.0.113.9"


def test_an_address_has_so_many_failures_a_minute() -> None:
    clock = FakeClock()
    guard = Guard(clock, 6)
    assert guard.wait("203.0.113.9") is None
    assert [guard.failed("203.0.113.9") for _ in range(6)] == [None] * 6
    assert guard.wait("203.0.113.9") == 10
    assert guard.failed("203.0.113.9") == 10
    assert guard.wait("203.0.113.10") is None
    clock.advance(9)
    assert guard.wait("203.0.113.9") == 1
    clock.advance(1)
    assert guard.wait("203.0.113.9") is None
    assert guard.failed("203.0.113.9") is None
    assert guard.wait("203.0.113.9") == 10
    clock.advance(60)
    assert [guard.failed("203.0.113.9") for _ in range(6)] == [None] * 6
    assert guard.failed("203.0.113.9") is not None


def test_one_network_of_ipv6_is_one_address() -> None:
    guard = Guard(FakeClock(), 3)
    assert [guard.failed(f"2001:db8::{n:x}") for n in range(4)][:3] == [None] * 3
    assert guard.wait("2001:db8::ffff") is not None


def test_without_a_bound_nobody_waits() -> None:
    guard = Guard(FakeClock(), 0)
    assert {guard.failed("203.0.113.9") for _ in range(1000)} == {None}
    assert guard.wait("203.0.113.9") is None
    assert guard.take_notes() == []


def test_what_is_noted_is_bounded() -> None:
    clock = FakeClock()
    guard = Guard(clock, 2)

    def guess(address: str) -> None:
        for _ in range(3):
            guard.failed(address)

    guess("203.0.113.9")
    assert guard.take_notes() == ["203.0.113.9"]
    clock.advance(300)
    guess("203.0.113.9")
    assert guard.take_notes() == []
    clock.advance(300)
    guess("203.0.113.9")
    assert guard.take_notes() == ["203.0.113.9"]
    for n in range(200):
        guess(f"198.51.100.{n}")
    assert len(guard.take_notes()) == 58
    clock.advance(3600)
    guess("198.51.100.201")
    assert guard.take_notes() == ["198.51.100.201"]


def test_no_number_of_addresses_fills_the_memory() -> None:
    guard = Guard(FakeClock(), 2)
    for n in range(12_000):
        guard.failed(f"10.{n >> 8}.{n & 255}.1")
    assert len(guard._buckets) == 10_000
