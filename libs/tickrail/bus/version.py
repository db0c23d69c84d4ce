"""Is the broker new enough? librdkafka does not tell, so the broker itself is asked.

One ApiVersions request (Kafka protocol, key 18, version 0), which a broker answers before any
login: the list of request kinds it serves. AddRaftVoter (80) came with 3.9.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable

import structlog

from tickrail.bus.config import KafkaSettings
from tickrail.core.errors import SetupError

OLDEST = "3.9"
_SINCE_OLDEST = 80
_REQUEST = struct.pack(">hhih", 18, 0, 1, -1)
_LARGEST = 1 << 16
_log = structlog.get_logger(__name__)


def check_broker(settings: KafkaSettings, timeout: float = 5.0) -> None:
    """Refuse a broker that is too old; one that cannot be asked is left to the client.

    Args:
        settings: how to reach Kafka.
        timeout: seconds for the whole exchange.

    Raises:
        SetupError: the first broker that answers is older than the oldest supported version.
    """
    for address in settings.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            kinds = _ask(settings, host.strip("[]"), int(port), timeout)
        except (OSError, ValueError, struct.error) as e:
            _log.debug("broker version not read", broker=address, error=str(e))
            continue
        if kinds and _SINCE_OLDEST not in kinds:
            raise SetupError(f"The Kafka broker {address} is too old: {OLDEST} or newer is needed.")
        return


def _ask(settings: KafkaSettings, host: str, port: int, timeout: float) -> frozenset[int]:
    with socket.create_connection((host, port), timeout) as plain:
        if not settings.security_protocol.endswith("SSL"):
            return _exchange(plain)
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.cert_file:
            context.load_cert_chain(
                settings.cert_file, settings.key_file or None, settings.key_password or None
            )
        with context.wrap_socket(plain, server_hostname=host) as wrapped:
            return _exchange(wrapped)


def _exchange(connection: socket.socket) -> frozenset[int]:
    connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
    with connection.makefile("rb") as answer:
        return read_kinds(answer.read)


def read_kinds(read: Callable[[int], bytes]) -> frozenset[int]:
    """The request kinds in an ApiVersions answer; empty where it carries an error.

    Raises:
        ValueError, struct.error: not such an answer.
    """
    (size,) = struct.unpack(">i", read(4))
    if not 0 < size <= _LARGEST:
        raise ValueError(f"an answer of {size} bytes")
    _correlation, error, count = struct.unpack_from(">ihi", body := read(size))
    if error:
        return frozenset()
    return frozenset(struct.unpack_from(">h", body, 10 + 6 * n)[0] for n in range(count))
