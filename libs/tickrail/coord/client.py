"""Calls to an etcd cluster: one channel for each server, a deadline for each call, failover.

A client begins at any of the servers. Where one cannot be reached, so that nothing was sent, a call
goes on to the next; after a call that a server did not answer, the next call does. A frozen server
is noticed by the deadline of a call, and on an idle stream by pings. The errors of gRPC end here.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import grpc
import structlog

from tickrail.coord import stubs
from tickrail.coord.server import Server, credentials
from tickrail.coord.settings import EtcdSettings
from tickrail.core.clock import SystemClock
from tickrail.core.errors import SetupError, TickrailError, UnavailableError
from tickrail.core.ports_ownership import LeaseLostError

OLDEST_VERSION = (3, 5)

_LOG = structlog.get_logger()
_CLOCK = SystemClock()
_SHORTEST = 0.1
"""Seconds; less is not given to a server when the call's time is used up."""
_NOT_CONNECTED = "failed to connect to all addresses; last error: "
_NOT_ANSWERED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}

Metadata = list[tuple[str, str]]
T = TypeVar("T")


class _NotReachedError(UnavailableError):
    """There was no connection to the server, so nothing was sent."""


class EtcdClient:
    """Calls by name. Safe to use from several threads.

    Raises:
        SettingsError: a certificate or key file cannot be read.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings = settings
        creds = credentials(settings)
        self._servers = [Server(a, creds) for a in settings.addresses]
        self._lock = threading.Lock()
        self._current = random.SystemRandom().randrange(len(self._servers))
        self._token: str | None = None
        self._answering = threading.Event()
        self._answering.set()
        self._on_failover: list[Callable[[], None]] = []

    @property
    def servers(self) -> int:
        """How many servers there are."""
        return len(self._servers)

    def on_failover(self, callback: Callable[[], None]) -> None:
        """Have this called when calls begin to go to another server."""
        self._on_failover.append(callback)

    def wait_answering(self, seconds: float) -> None:
        """Wait until a unary call was answered after one was not, for so long at most."""
        self._answering.wait(seconds)

    def stop_waiting(self) -> None:
        """Let go whoever is in `wait_answering`."""
        self._answering.set()

    def unary(self, service: str, method: str, request: object) -> Any:  # noqa: ANN401 - a message
        """One call with one answer.

        Raises:
            UnavailableError: no answer within the deadline; the call may have had its effect.
            LeaseLostError: the lease named has ended.
            SetupError: etcd refused the user, the password or the access.
        """

        def once(index: int, seconds: float) -> Any:  # noqa: ANN401 - a message
            metadata = self._metadata(index, seconds)
            made = self._call(index, service, method, seconds)
            return made(request, timeout=seconds, metadata=metadata)

        return self._answer(once)

    def exchange(self, service: str, method: str, request: object) -> Any:  # noqa: ANN401 - a message
        """One message there and one back over a streaming call, which is then ended.

        Raises:
            UnavailableError: no answer within the deadline.
        """

        def once(index: int, seconds: float) -> Any:  # noqa: ANN401 - a message
            metadata = self._metadata(index, seconds)
            made = self._call(index, service, method, seconds)
            stream = made(iter([request]), timeout=seconds, metadata=metadata)
            try:
                return next(stream)
            except StopIteration:
                raise UnavailableError("etcd ended the call without an answer") from None
            finally:
                stream.cancel()

        return self._answer(once)

    def stream(self, service: str, method: str, requests: Iterable[object]) -> tuple[Any, int]:
        """A streaming call that stays open, and the number of its server.

        Its iterator raises `grpc.RpcError`; give that to `failed`. It ends when its server has no
        leader.
        """

        def once(index: int, seconds: float) -> tuple[Any, int]:
            metadata = [*self._metadata(index, seconds), ("hasleader", "true")]
            made = self._call(index, service, method, seconds)
            return made(requests, metadata=metadata), index

        return self._round(once)

    def failed(self, error: grpc.RpcError, index: int) -> TickrailError:
        """Take note of a failed call: go to another server, or forget the token; what to raise."""
        code, detail = error.code(), error.details() or ""
        where = self._where(index)
        if _token_refused(error):
            self.forget_token()
            return UnavailableError(f"{where} wants a new token: {detail}")
        if code in _NOT_ANSWERED:
            # A server that answers "no leader" is reached all right.
            if code is grpc.StatusCode.UNAVAILABLE and not detail.startswith("etcdserver"):
                self._servers[index].lost()
            self._away(index)
            reason = _reason(detail) if code is grpc.StatusCode.UNAVAILABLE else code.value[1]
            said = f"{where} does not answer: {reason}"
            if detail.startswith(_NOT_CONNECTED):
                return _NotReachedError(said)
            return UnavailableError(said)
        if code is grpc.StatusCode.NOT_FOUND and "lease not found" in detail:
            return LeaseLostError("the lease has ended")
        return SetupError(f"{where} refuses: {detail} ({code.value[1]})")

    def forget_token(self) -> None:
        """Get a new token before the next call."""
        with self._lock:
            self._token = None

    def version(self) -> str:
        """The version of a server that answers; each is asked in turn until one does.

        Raises:
            SetupError: it is older than the oldest supported one.
            UnavailableError: none answers.
        """
        request = stubs.message("StatusRequest")()
        for left in reversed(range(len(self._servers))):
            try:
                answer = self.unary("Maintenance", "Status", request)
                break
            except UnavailableError:
                if not left:
                    raise
        version = str(answer.version)
        numbers = tuple(int(n) for n in version.split(".")[:2] if n.isdigit())
        if numbers < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise SetupError(f"etcd is version {version}; {oldest} or newer is needed")
        return version

    def close(self) -> None:
        """End all calls and connections."""
        for server in self._servers:
            server.close()

    def _answer(self, once: Callable[[int, float], Any]) -> Any:  # noqa: ANN401 - a message
        answer = self._round(lambda index, seconds: self._authorised(once, index, seconds))
        self._answering.set()
        return answer

    def _round(self, once: Callable[[int, float], T]) -> T:
        """Do it with the server in use, or where that cannot be reached with one that can."""
        ends = _CLOCK.monotonic() + self._settings.call_timeout
        for left in reversed(range(len(self._servers))):
            seconds = ends - _CLOCK.monotonic()
            try:
                return once(self._current, max(seconds, _SHORTEST))
            except _NotReachedError:
                if not left or seconds <= _SHORTEST:
                    raise
        raise AssertionError  # there is a server

    def _authorised(self, once: Callable[[int, float], Any], index: int, seconds: float) -> Any:  # noqa: ANN401 - a message
        """Make a call; once more with a new token when the one it had is no longer good."""
        try:
            return once(index, seconds)
        except grpc.RpcError as error:
            known = self.failed(error, index)
            if not _token_refused(error) or not self._settings.username:
                raise known from None
        try:
            return once(index, seconds)
        except grpc.RpcError as again:
            raise self.failed(again, index) from None

    def _metadata(self, index: int, seconds: float) -> Metadata:
        if not self._settings.username:
            return []
        with self._lock:
            token = self._token
        if token is None:
            request = stubs.message("AuthenticateRequest")(
                name=self._settings.username, password=self._settings.password
            )
            try:
                made = self._call(index, "Auth", "Authenticate", seconds)
                token = str(made(request, timeout=seconds).token)
            except grpc.RpcError as error:
                raise self.failed(error, index) from None
            with self._lock:
                self._token = token
        return [("token", token)]

    def _call(self, index: int, service: str, method: str, seconds: float) -> Callable[..., Any]:
        server = self._servers[index]
        try:
            server.reach(seconds)
        except UnavailableError as error:
            self._away(index)
            detail = f"{self._where(index)} does not answer: {error.detail}"
            raise _NotReachedError(detail) from None
        return server.call(service, method)

    def _where(self, index: int) -> str:
        return f"etcd at {self._servers[index].address}"

    def _away(self, index: int) -> None:
        """A server does not answer: the next call goes to the next one."""
        self._answering.clear()
        with self._lock:
            if self._current != index or len(self._servers) == 1:
                return
            self._current = (index + 1) % len(self._servers)
        _LOG.debug("etcd server changed", to=self._servers[self._current].address)
        for callback in self._on_failover:
            callback()


def _token_refused(error: grpc.RpcError) -> bool:
    # The second: users or rights were changed since the token was made.
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or "auth store is old" in (
        error.details() or ""
    )


def _reason(detail: str) -> str:
    """What gRPC says of a connection that failed, without what is said anyway: where."""
    return re.sub(r"^UNKNOWN: (?:ipv[46]|dns|unix):\S+: ", "", detail.removeprefix(_NOT_CONNECTED))
