"""A receiver of webhooks with a set latency and share of failures, that keeps a journal.

    python -m loadtest.receiver --journal FILE [--latency 0.02] [--failures 0.05]

The port is told on standard output. Which attempts are answered with 500, and after how long, is
drawn from launch and attempt: from half to one and a half times the latency. The journal has a line
for each attempt that reached it: launch, attempt, fencing token, whether it was refused.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TextIO

LOOPBACK = "127.0.0.1"
OK_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
FIELDS = (b"idempotency-key", b"tickrail-attempt", b"fencing-token")


class Start(NamedTuple):
    """An attempt as the receiver saw it."""

    launch: str
    attempt: int
    token: int
    failed: bool


@dataclass(frozen=True)
class Manner:
    """How it answers: seconds, and the share of attempts that are answered with 500."""

    latency: float
    failures: float

    def of(self, launch: str, attempt: int) -> tuple[float, bool]:
        """Seconds until this attempt is answered, and whether it is refused."""
        drawn = blake2b(f"{launch}/{attempt}".encode(), digest_size=8).digest()
        failed = int.from_bytes(drawn[:4]) < self.failures * 2**32
        return self.latency * (0.5 + int.from_bytes(drawn[4:]) / 2**32), failed


def header(head: bytes, name: bytes) -> str:
    """A header's value from the head of a request in lower case; empty where it is not there."""
    at = head.find(b"\r\n" + name + b":")
    if at < 0:
        return ""
    end = head.find(b"\r\n", at + 2)
    return head[at + len(name) + 3 : end if end >= 0 else len(head)].strip().decode("latin-1")


class Requests(asyncio.Protocol):
    """As much of HTTP as the calls need, one request after the other."""

    def __init__(self) -> None:
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take requests as they become whole."""
        self._got += data
        while (end := self._got.find(b"\r\n\r\n")) >= 0:
            head = self._got[:end].lower()
            size = int(header(head, b"content-length") or 0)
            if len(self._got) < end + 4 + size:
                return
            self._got = self._got[end + 4 + size :]
            self.asked(head)

    def asked(self, head: bytes) -> None:
        """A request is here, its body read: its line and headers, in lower case."""
        raise NotImplementedError

    def answer(self, whole: bytes) -> None:
        """Send an answer."""
        self._transport.write(whole)


class Connection(Requests):
    """One that answers in a manner, and writes down what it was asked."""

    def __init__(self, manner: Manner, journal: TextIO) -> None:
        super().__init__()
        self._manner, self._journal = manner, journal

    def asked(self, head: bytes) -> None:
        """Write it down, and answer in time."""
        launch, attempt, token = (header(head, name) for name in FIELDS)
        after, failed = self._manner.of(launch, int(attempt or 0))
        self._journal.write(f"{launch} {attempt or 0} {token or 0} {int(failed)}\n")
        answer = FAILED if failed else OK_ANSWER
        asyncio.get_running_loop().call_later(after, self.answer, answer)


async def serve(manner: Manner, journal: Path) -> None:
    """Serve until the process is told to end; then the journal is whole."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    with journal.open("w", encoding="utf-8") as lines:
        server = await loop.create_server(
            lambda: Connection(manner, lines), LOOPBACK, 0, backlog=4096
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await ended.wait()
        server.close()


@dataclass
class Receiver:
    """One that runs in a process of its own."""

    process: subprocess.Popen[str]
    journal: Path
    port: int

    @property
    def url(self) -> str:
        """Where webhooks go."""
        return f"http://{LOOPBACK}:{self.port}/effect"

    def end(self) -> list[Start]:
        """Stop it; what reached it."""
        self.process.terminate()
        self.process.wait(30)
        return read_journal(self.journal)


def read_journal(path: Path) -> list[Start]:
    """The lines of a journal."""
    found = []
    for line in path.read_text("utf-8").splitlines():
        launch, attempt, token, failed = line.split(" ")
        found.append(Start(launch, int(attempt), int(token), failed == "1"))
    return found


@contextmanager
def receiver(journal: Path, manner: Manner) -> Iterator[Receiver]:
    """A receiver that runs."""
    command = [sys.executable, "-m", "loadtest.receiver", "--journal", str(journal)]
    command += ["--latency", str(manner.latency), "--failures", str(manner.failures)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Receiver(process, journal, int(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(30)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds, on average")
    parser.add_argument("--failures", type=float, default=0.05, help="share of the attempts")
    args = parser.parse_args()
    asyncio.run(serve(Manner(args.latency, args.failures), args.journal))
    return 0


if __name__ == "__main__":
    sys.exit(main())
