"""A server that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any


@dataclass
class Answer:
    """What to answer: JSON, or a text as it is."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None


Reply = Answer | Callable[[Asked], Answer]


def problem(status: int, code: str, detail: str, *errors: Mapping[str, str]) -> Answer:
    """An error as the API writes it."""
    body = {"status": status, "code": code, "detail": detail, "errors": list(errors)}
    return Answer(status, body | {"request_id": "req-1"})


class StubApi:
    """Answers by method and path; a list of answers is used up one by one, the last one stays."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, str], list[Reply]] = {}
        self.asked: list[Asked] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                stub._serve(self)

            do_GET = answer  # noqa: N815 - http.server finds it by this name
            do_POST = answer  # noqa: N815 - as above
            do_PUT = answer  # noqa: N815 - as above
            do_PATCH = answer  # noqa: N815 - as above
            do_DELETE = answer  # noqa: N815 - as above

            def log_message(self, *_args: object) -> None:
                """Tests are quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def on(self, method: str, path: str, *replies: Reply) -> None:
        self.replies[method, path] = list(replies)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        asked = Asked(
            handler.command,
            parts.path,
            parse_qs(parts.query),
            {k.lower(): v for k, v in handler.headers.items()},
            json.loads(raw) if raw else None,
        )
        self.asked.append(asked)
        waiting = self.replies.get((asked.method, asked.path))
        if not waiting:
            reply: Reply = problem(404, "not_found", f"nothing at {asked.path}")
        else:
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        answer = reply if isinstance(reply, Answer) else reply(asked)
        text = answer.text
        if text is None:
            text = "" if answer.body is None else json.dumps(answer.body)
        body = text.encode()
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        if answer.status != 204:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if answer.status != 204:
            handler.wfile.write(body)
