"""A watch that lasts: calls back soon after a key under a range changed.

It begins again where it was after a disconnect, anew where etcd has compacted that away, and waits
between tries, longer each time. Since calls may be missed in all that, it also calls back whenever
it has connected; whoever is called reads the whole state.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import structlog

from tickrail.coord import stubs
from tickrail.coord.client import EtcdClient
from tickrail.core.errors import TickrailError

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 2.0
_OWN_TRY_SECONDS = 5.0
_LOG = structlog.get_logger()


class Watch:
    """One watch in a thread of its own.

    Args:
        client: the connection.
        first: the first key of the range.
        end: the first key after the range.
        wake: called from the watch's thread; must be quick and not raise.
    """

    def __init__(
        self, client: EtcdClient, first: bytes, end: bytes, wake: Callable[[], None]
    ) -> None:
        self._client = client
        self._range = first, end
        self._wake = wake
        self._rng = random.SystemRandom()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._stream: Any = None
        self._next_revision = 0
        self._delay = _FIRST_DELAY
        self.connections = 0
        """How often it has connected."""
        self._thread = threading.Thread(target=self._run, name="etcd-watch", daemon=True)
        client.on_failover(self.reconnect)
        self._thread.start()

    def reconnect(self) -> None:
        """Connect anew, for the server in use is another."""
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def stop(self) -> None:
        """End; returns when the thread has ended."""
        self._stopped.set()
        self.reconnect()
        self._client.stop_waiting()
        self._thread.join(timeout=_OWN_TRY_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._connect()
            except TickrailError as error:
                _LOG.debug("watch not connected", error=str(error))
            # Also after an orderly end, so that nothing can make this spin.
            self._stopped.wait(self._delay * self._rng.uniform(0.5, 1.0))
            self._delay = min(_LONGEST_DELAY, self._delay * 2)
            # An outage ends when the owner's calls are answered again; to try here as well would
            # only cost. Now and then it is tried all the same, should nobody else call.
            self._client.wait_answering(_OWN_TRY_SECONDS)

    def _connect(self) -> None:
        done = threading.Event()
        try:
            stream, server = self._client.stream("Watch", "Watch", self._requests(done))
            with self._lock:
                self._stream = stream
            if self._stopped.is_set():
                return
            self._read(stream)
        except grpc.RpcError as error:
            # Cancelled: by `reconnect`, mostly.
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise self._client.failed(error, server) from None
        finally:
            done.set()
            with self._lock:
                if self._stream is not None:
                    self._stream.cancel()
                self._stream = None

    def _requests(self, done: threading.Event) -> Iterator[object]:
        first, end = self._range
        create = stubs.message("WatchCreateRequest")(
            key=first, range_end=end, start_revision=self._next_revision
        )
        yield stubs.message("WatchRequest")(create_request=create)
        done.wait()  # the stream stays open as long as this has not ended

    def _read(self, stream: Iterator[Any]) -> None:
        for answer in stream:
            if answer.canceled:
                if answer.compact_revision:
                    self._next_revision = 0
                else:
                    # etcd does so for a token that is no longer good, without an error.
                    self._client.forget_token()
                _LOG.debug("watch cancelled", reason=answer.cancel_reason)
                self._wake()
                return
            if answer.created:
                self.connections += 1
                self._delay = _FIRST_DELAY
                self._wake()
            if answer.events:
                self._next_revision = max(e.kv.mod_revision for e in answer.events) + 1
                self._wake()
