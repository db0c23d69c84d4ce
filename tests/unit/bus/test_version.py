"""Whether a broker is new enough, by what it says it serves."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from tickrail.bus.config import KafkaSettings
from tickrail.bus.version import check_broker, read_kinds
from tickrail.core.errors import SetupError


def answer(*kinds: int, error: int = 0) -> bytes:
    body = struct.pack(">ihi", 1, error, len(kinds))
    body += b"".join(struct.pack(">hhh", kind, 0, 3) for kind in kinds)
    return struct.pack(">i", len(body)) + body


class _Handler(socketserver.BaseRequestHandler):
    said = b""

    def handle(self) -> None:
        (size,) = struct.unpack(">i", self.request.recv(4))
        kind, version, *_ = struct.unpack(">hhih", self.request.recv(size))
        assert (kind, version) == (18, 0)
        self.request.sendall(self.said)


@pytest.fixture
def broker() -> Iterator[socketserver.TCPServer]:
    with socketserver.TCPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        pytest.param(answer(0, 18, 75), True, id="3.8"),
        pytest.param(answer(0, 18, 75, 80, 81), False, id="3.9"),
        pytest.param(answer(error=35), False, id="it does not say"),
        pytest.param(b"\x00\x00\xff\xff", False, id="too long"),
        pytest.param(b"", False, id="no answer"),
    ],
)
def test_an_old_broker_is_refused(
    broker: socketserver.TCPServer, monkeypatch: pytest.MonkeyPatch, said: bytes, refused: bool
) -> None:
    monkeypatch.setattr(_Handler, "said", said)
    settings = KafkaSettings(bootstrap=f"127.0.0.1:1,127.0.0.1:{broker.server_address[1]}")
    if refused:
        with pytest.raises(SetupError, match=r"too old: 3\.9 or newer"):
            check_broker(settings)
    else:
        check_broker(settings)


def test_the_kinds_are_read() -> None:
    said = answer(3, 80)
    parts = [said[:4], said[4:]]
    assert read_kinds(lambda _size: parts.pop(0)) == {3, 80}
