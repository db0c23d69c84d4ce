"""The connection to one etcd server, cheap while the server is away.

gRPC tries again and again to connect to a server that refuses, and each call costs it half a
millisecond even when it fails at once. So its own tries are rare; while a server cannot be reached,
each call first makes a plain TCP connection, which costs next to nothing, and once that succeeds
the gRPC channel is made anew.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from tickrail.coord import stubs
from tickrail.coord.settings import EtcdSettings
from tickrail.core.errors import SettingsError, UnavailableError

_OPTIONS = [
    # Several clients in one process share no connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 30_000),
    # Pings on a stream with no traffic. etcd refuses more than one in 5 s. Without the last
    # option gRPC does not act on a ping that is not answered.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.ping_timeout_ms", 2000),
]


def credentials(settings: EtcdSettings) -> grpc.ChannelCredentials | None:
    """The TLS credentials that the settings name; None without TLS.

    Raises:
        SettingsError: a certificate or key file cannot be read.
    """
    if not settings.tls:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_read("ca_file", settings.ca_file),
        private_key=_read("key_file", settings.key_file),
        certificate_chain=_read("cert_file", settings.cert_file),
    )


class Server:
    """One server. Safe to use from several threads.

    Args:
        address: `host:port`.
        creds: from `credentials`.
    """

    def __init__(self, address: str, creds: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self._creds = creds
        self._lock = threading.Lock()
        self._channel = self._connect()
        self._calls: dict[tuple[str, str], Callable[..., Any]] = {}
        self._unreachable = False
        self._closed = False

    def lost(self) -> None:
        """A call could not reach the server."""
        with self._lock:
            self._unreachable = True

    def reach(self, seconds: float) -> None:
        """Return if the server can be reached, or is not known to be unreachable.

        Args:
            seconds: so long may the plain connection take.

        Raises:
            UnavailableError: it cannot; the message is the reason alone.
        """
        if not self._unreachable:
            return
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), seconds).close()
        except OSError as error:
            raise UnavailableError(error.strerror or str(error)) from None
        with self._lock:
            if not self._unreachable or self._closed:
                return
            self._unreachable = False
            old, self._channel, self._calls = self._channel, self._connect(), {}
        old.close()

    def call(self, service: str, method: str) -> Callable[..., Any]:
        """The call of this name on the present channel."""
        with self._lock:
            made = self._calls.get((service, method))
            if made is None:
                made = self._calls[service, method] = stubs.call(self._channel, service, method)
        ready: Callable[..., Any] = made

        def guarded(*args: object, **kwargs: object) -> Any:  # noqa: ANN401 - as gRPC's
            try:
                return ready(*args, **kwargs)
            except ValueError:
                # What gRPC raises for a channel that another thread has just closed.
                raise UnavailableError(f"the connection to etcd at {self.address} ended") from None

        return guarded

    def close(self) -> None:
        """End all calls and the connection."""
        with self._lock:
            self._closed = True
            self._channel.close()

    def _connect(self) -> grpc.Channel:
        if self._creds is None:
            return grpc.insecure_channel(self.address, options=_OPTIONS)
        return grpc.secure_channel(self.address, self._creds, options=_OPTIONS)


def _read(name: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"etcd {name} {path}: cannot be read ({error.strerror})") from None
    if b"-----BEGIN" not in content:
        raise SettingsError(f"etcd {name} {path}: not a PEM file")
    return content
