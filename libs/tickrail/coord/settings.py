"""Where etcd is and how to talk to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tickrail.core.errors import SettingsError

_MAX_PORT = 65535


@dataclass(frozen=True)
class EtcdSettings:
    """Settings of the connection; checked when made.

    Attributes:
        endpoints: `host:port`, `http://host:port` or `https://host:port`, one for each server of
            the cluster.
        ca_file: certificates (PEM) that the servers' certificates are checked against. Turns TLS
            on, as `https` does; without it the usual ones of this machine are used.
        cert_file: this client's certificate (PEM), with `key_file`.
        key_file: its private key (PEM).
        username: etcd's user; needs TLS.
        password: its password.
        prefix: all keys begin with it: `/tickrail/<installation>/`.
        call_timeout: deadline of each call, in seconds.
    """

    endpoints: tuple[str, ...]
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    prefix: str = "/tickrail/default/"
    call_timeout: float = 2.0

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise SettingsError("etcd endpoints: none is given; expected host:port, ...")
        schemes = {_split(e)[0] for e in self.endpoints}
        if {"http", "https"} <= schemes or ("http" in schemes and self.ca_file):
            raise SettingsError("etcd endpoints: http and TLS do not go together; use https")
        if bool(self.cert_file) != bool(self.key_file):
            raise SettingsError("etcd cert_file and key_file: give both or none")
        if self.cert_file and not self.tls:
            raise SettingsError("etcd cert_file: needs https endpoints or a ca_file")
        if bool(self.username) != bool(self.password):
            raise SettingsError("etcd username and password: give both or none")
        if self.username and not self.tls:
            raise SettingsError(
                "etcd username: a password is sent over TLS only; use https endpoints or a ca_file"
            )
        if not (self.prefix.startswith("/") and self.prefix.endswith("/") and self.prefix != "/"):
            raise SettingsError(
                f"etcd prefix {self.prefix!r}: it must begin and end with /, "
                "as in /tickrail/default/"
            )
        if self.call_timeout <= 0:
            raise SettingsError(f"etcd call_timeout is {self.call_timeout}; it must be above 0")

    @property
    def tls(self) -> bool:
        """Whether the connections are encrypted."""
        return bool(self.ca_file) or any(_split(e)[0] == "https" for e in self.endpoints)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The endpoints as `host:port`."""
        return tuple(_split(e)[1] for e in self.endpoints)


def _split(endpoint: str) -> tuple[str, str]:
    """The scheme (may be empty) and `host:port`."""
    wrong = SettingsError(
        f"etcd endpoint {endpoint!r}: expected host:port, http://host:port or https://host:port"
    )
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        port = parts.port
    except ValueError:
        raise wrong from None
    if (
        parts.scheme not in {"", "http", "https"}
        or not parts.hostname
        or not port
        or port > _MAX_PORT
        or parts.path not in {"", "/"}
        or parts.username
    ):
        raise wrong
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return parts.scheme, f"{host}:{port}"
