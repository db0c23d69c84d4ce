"""A client of Tickrail's HTTP API, for programs and for the command line.

Every call can safely be tried again (a POST carries an Idempotency-Key, the same at each try), so
lost connections and answers that ask to wait are tried again a few times before they are errors.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from tickrail.core.clock import Clock, SystemClock

_TRIES = 4
_FIRST_DELAY = 0.2
_LONGEST_DELAY = 30.0
_CONNECT_WITHIN = 5.0
_SHORTEST = 0.1
_ENDLESS = float("inf")
_WAIT_STATUS = frozenset({429, 503})
_IN_PROGRESS = 409
_NO_CONTENT = 204
_FIRST_ERROR = 400
_SHOWN = 200

Params = Mapping[str, str | int | Sequence[str]]
Wait = Callable[[float], object]


@dataclass(frozen=True)
class ApiProblem:
    """One thing wrong with a request: JSON pointer, message, what would be right."""

    pointer: str
    message: str
    expected: str = ""


@dataclass(eq=False)
class ApiError(Exception):
    """The API refused a request.

    Attributes:
        status: the HTTP status.
        code: the error's stable name, such as `not_found`.
        detail: what is wrong, in words.
        problems: what is wrong with each part of the request.
        request_id: what the server's log calls the request.
    """

    status: int
    code: str
    detail: str
    problems: tuple[ApiProblem, ...] = ()
    request_id: str = ""

    def __str__(self) -> str:
        """The detail, and behind it the problem; several stand on lines of their own."""
        said = [
            (f"{p.pointer}: " if p.pointer else "")
            + p.message
            + (f" ({p.expected})" if p.expected else "")
            for p in self.problems
        ]
        if len(said) == 1:
            return f"{self.detail.removesuffix('.')}: {said[0]}"
        return "\n  ".join([self.detail, *said])


class UnreachableError(Exception):
    """Nothing that speaks Tickrail's API answers at this address."""


class Client:
    """Calls the API. May be used from several threads; close it after use.

    Args:
        url: where the API is, such as `http://127.0.0.1:8080`.
        key: the API key (`trk_...`); empty for calls that need none.
        timeout: seconds to wait for an answer.
        headers: sent with every call, such as `Tickrail-Tenant`.
        transport: another way to send requests, for tests.
        wait: how to wait between two tries.
        clock: measures how long a call takes.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        timeout: float = 30.0,
        *,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        wait: Wait | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._clock: Clock = clock or SystemClock()
        self._wait: Wait = wait if wait is not None else threading.Event().wait
        sent = {"Accept": "application/json", "User-Agent": "tickrail-client", **(headers or {})}
        if key:
            sent["Authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=sent,
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        json: object = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        within: float | None = None,
    ) -> Any:  # noqa: ANN401 - any JSON
        """One call; the answer's JSON, None where it has none.

        Args:
            method: GET, POST, ...
            path: from the root, such as `/v1/jobs`.
            json: the body.
            params: of the query; a list repeats its name.
            headers: sent with this call. A POST without an `Idempotency-Key` gets one.
            within: seconds that all its tries and the pauses between them may take together, for
                somebody who waits for it; four tries of the client's timeout unless given.

        Raises:
            ApiError: the API refused it.
            UnreachableError: no answer, or none that is the API's.
        """
        sent = dict(headers or {})
        if method.upper() == "POST" and "idempotency-key" not in map(str.lower, sent):
            sent["Idempotency-Key"] = str(uuid.uuid4())
        answer = self._tried(
            lambda seconds: self._http.request(
                method,
                path,
                params=dict(params or {}),
                headers=sent,
                json=json,
                timeout=httpx.Timeout(seconds, connect=min(seconds, _CONNECT_WITHIN)),
            ),
            _ENDLESS if within is None else within,
        )
        if answer.status_code >= _FIRST_ERROR:
            raise _error(answer)
        if answer.status_code == _NO_CONTENT or not answer.content:
            return None
        return self._decoded(answer)

    def pages(
        self, path: str, params: Params | None = None, within: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """All items of a list, page after page; `within` as for `request`, for each page.

        Raises:
            ApiError: the API refused it.
            UnreachableError: no answer.
        """
        query: dict[str, str | int | Sequence[str]] = dict(params or {})
        while True:
            page = self.request("GET", path, params=query, within=within)
            yield from page["items"]
            if page.get("next_cursor") is None:
                return
            query["cursor"] = page["next_cursor"]

    def _tried(self, send: Callable[[float], httpx.Response], within: float) -> httpx.Response:
        """Send up to four times, with growing pauses, and no longer than so many seconds."""
        delay, ends = _FIRST_DELAY, self._clock.monotonic() + within
        refused: httpx.Response | None = None
        for left in range(_TRIES - 1, -1, -1):
            pause = delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            try:
                answer = send(min(self._timeout, max(ends - self._clock.monotonic(), _SHORTEST)))
            except httpx.TransportError as e:
                over = self._clock.monotonic() + pause >= ends
                if over and refused is not None:
                    return refused  # it says more than that the time was over before the next one
                if not left or over or isinstance(e, httpx.UnsupportedProtocol):
                    raise UnreachableError(f"{self.url} does not answer: {_words(e)}") from e
            except httpx.InvalidURL as e:
                raise UnreachableError(f"{self.url} is not an address: {e}") from e
            else:
                asked = _retry_after(answer)
                busy = answer.status_code in _WAIT_STATUS or (
                    answer.status_code == _IN_PROGRESS and asked is not None
                )
                pause = max(pause, asked or 0)
                over = pause > _LONGEST_DELAY or self._clock.monotonic() + pause >= ends
                if not busy or not left or over:
                    return answer
                refused = answer
            self._wait(pause)
            delay *= 2
        raise AssertionError("the last try returns or raises")

    def _decoded(self, answer: httpx.Response) -> Any:  # noqa: ANN401 - any JSON
        try:
            return answer.json()
        except ValueError:
            raise UnreachableError(
                f"What answers at {self.url} is not Tickrail's API: no JSON but"
                f" {answer.headers.get('content-type', 'nothing known')}"
            ) from None


def _retry_after(answer: httpx.Response) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _words(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__


def _error(answer: httpx.Response) -> ApiError:
    """The error of a problem document, or of whatever else came."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "code" not in document:
        text = " ".join(answer.text.split())[:_SHOWN] or answer.reason_phrase
        return ApiError(answer.status_code, "unknown", f"HTTP {answer.status_code}: {text}")
    found = document.get("errors") or ()
    problems = tuple(
        ApiProblem(
            str(p.get("pointer", "")), str(p.get("message", "")), str(p.get("expected") or "")
        )
        for p in found
        if isinstance(p, dict)
    )
    detail = document.get("detail") or document.get("title") or answer.reason_phrase
    return ApiError(
        answer.status_code,
        str(document["code"]),
        str(detail),
        problems,
        str(document.get("request_id") or ""),
    )
