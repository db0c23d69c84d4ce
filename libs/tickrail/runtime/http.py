"""/healthz, /readyz and /metrics of a process, on a port of their own."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any, Protocol

import structlog

from tickrail.core.errors import Problem, SettingsError

Check = Callable[[], Mapping[str, str]]
"""Answers what is wrong: name of the loop or server -> in words. Empty: all is well."""

_POLL = 0.2
_log = structlog.get_logger(__name__)


class Exposition(Protocol):
    """What /metrics shows."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text for this Accept header, and its content type."""
        ...


class StatusServer:
    """Serves the status of this process; the port is bound when it is made.

    Args:
        host: address to listen on.
        port: port to listen on; 0 takes any free one.
        health: what makes this process worth restarting.
        ready: what is missing for it to do its work.
        metrics: what /metrics shows.
        settings: names of the two settings, for the error.

    Raises:
        SettingsError: the address cannot be listened on; names the setting.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        health: Check,
        ready: Check,
        metrics: Exposition,
        settings: tuple[str, str] = ("status_host", "status_port"),
    ) -> None:
        self._checks = {"/healthz": health, "/readyz": ready}
        self._metrics = metrics
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as e:
            raise listen_error(e, host, port, settings) from e
        self._server.status = self
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL,), name="status", daemon=True
        )
        self._lock = threading.Lock()
        self._state = "new"

    def start(self) -> None:
        """Begin to answer; nothing if it has begun or was stopped."""
        with self._lock:
            if self._state == "new":
                self._state = "serving"
                self._thread.start()

    def stop(self) -> None:
        """End, and free the port; may be called again, and before `start`."""
        with self._lock:
            before, self._state = self._state, "stopped"
            if before == "serving":
                self._server.shutdown()
                self._thread.join()
            if before != "stopped":
                self._server.server_close()

    def answer(self, path: str, accept: str) -> tuple[int, bytes, str]:
        """Status, body and content type for a path."""
        if path == "/metrics":
            body, kind = self._metrics.render(accept)
            return HTTPStatus.OK, body, kind
        check = self._checks.get(path)
        if check is None:
            known = ", ".join([*self._checks, "/metrics"])
            return _json(HTTPStatus.NOT_FOUND, {"status": "not_found", "known": known})
        try:
            problems = dict(check())
        except Exception as e:  # noqa: BLE001 - a broken check is an answer too
            _log.exception("a status check failed", path=path)
            problems = {"check": type(e).__name__}
        if problems:
            body_503 = {"status": "unavailable", "problems": problems}
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, body_503)
        return _json(HTTPStatus.OK, {"status": "ok"})


def listen_error(error: OSError, host: str, port: int, settings: tuple[str, str]) -> SettingsError:
    """The error for an address that cannot be listened on, naming the setting."""
    host_name, port_name = (f"{name} (TICKRAIL_{name.upper()})" for name in settings)
    if error.errno == errno.EADDRINUSE:
        problem = Problem(
            port_name, f"port {port} of {host} is in use", "a free port, or 0 for any"
        )
    elif error.errno == errno.EACCES:
        problem = Problem(port_name, f"port {port} may not be opened", "a port from 1024, or 0")
    else:
        problem = Problem(
            host_name,
            f"{host} cannot be listened on ({error.strerror})",
            "an address of this machine, such as 127.0.0.1 or 0.0.0.0",
        )
    return SettingsError("It cannot listen where it should.", (problem,))


def _json(status: HTTPStatus, content: Mapping[str, object]) -> tuple[int, bytes, str]:
    return status, json.dumps(content).encode() + b"\n", "application/json"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    status: StatusServer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as in socketserver
        _log.debug("a status request broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 5
    server_version = "tickrail"
    sys_version = ""
    server: BaseServer

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        server = self.server
        if not isinstance(server, _Server):
            raise TypeError("this handler belongs to a StatusServer")
        path = self.path.split("?", 1)[0]
        status, body, kind = server.status.answer(path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
        _log.debug("status request", line=format % args)
