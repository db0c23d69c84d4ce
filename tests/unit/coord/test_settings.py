"""etcd's settings: what is right, and what each wrong one is told."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.coord.settings import EtcdSettings
from tickrail.core.errors import SettingsError

ONE = ("127.0.0.1:2379",)


@pytest.mark.parametrize(
    ("endpoints", "addresses", "tls"),
    [
        (ONE, ("127.0.0.1:2379",), False),
        (("http://a:1", "b:2"), ("a:1", "b:2"), False),
        (("https://a:1/",), ("a:1",), True),
        (("http://[::1]:2379",), ("[::1]:2379",), False),
    ],
)
def test_endpoints(endpoints: tuple[str, ...], addresses: tuple[str, ...], tls: bool) -> None:
    settings = EtcdSettings(endpoints)
    assert settings.addresses == addresses
    assert settings.tls is tls


def test_a_ca_file_turns_tls_on() -> None:
    assert EtcdSettings(ONE, ca_file="ca.pem").tls


def test_the_password_is_not_shown() -> None:
    settings = EtcdSettings(ONE, ca_file="ca.pem", username="u", password="geheim")
    assert "geheim" not in repr(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"endpoints": ()}, "etcd endpoints: none"),
        ({"endpoints": ("localhost",)}, "etcd endpoint 'localhost': expected host:port"),
        ({"endpoints": ("localhost:x",)}, "expected host:port"),
        ({"endpoints": ("localhost:70000",)}, "expected host:port"),
        ({"endpoints": ("ftp://a:1",)}, "expected host:port"),
        ({"endpoints": ("http://a:1/path",)}, "expected host:port"),
        ({"endpoints": ("http://u:p@a:1",)}, "expected host:port"),
        ({"endpoints": ("http://a:1", "https://b:1")}, "use https"),
        ({"endpoints": ("http://a:1",), "ca_file": "ca"}, "use https"),
        ({"endpoints": ONE, "cert_file": "c"}, "cert_file and key_file"),
        ({"endpoints": ONE, "cert_file": "c", "key_file": "k"}, "needs https"),
        ({"endpoints": ONE, "ca_file": "ca", "username": "u"}, "username and password"),
        ({"endpoints": ONE, "username": "u", "password": "p"}, "over TLS only"),
        ({"endpoints": ONE, "prefix": "tickrail"}, "begin and end with /"),
        ({"endpoints": ONE, "prefix": "/"}, "begin and end with /"),
        ({"endpoints": ONE, "call_timeout": 0}, "call_timeout is 0"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        EtcdSettings(**settings)
