"""What a call does, without doing it: one definition for blocking and for async programs.

A `Flow` is a generator that yields what is to be done next, a request (`Send`) or a wait
(`Pause`), is handed what came of it, and returns the call's result. It reads no clock of its own
and knows no HTTP library; `senders.py` carries flows out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from tickrail.sdk.client.errors import (
    ApiError,
    ApiProblem,
    UnexpectedAnswerError,
    UnreachableError,
    error_class,
)

T = TypeVar("T")
ENDLESS = float("inf")
_FIRST_DELAY = 0.2
_LONGEST_DELAY = 30.0
_SHORTEST = 0.1
_RATE_LIMITED = 429
_IN_PROGRESS = 409
_GATEWAYS = frozenset({502, 503, 504})
_REDIRECTS = range(300, 400)
_NO_CONTENT = 204
_FIRST_ERROR = 400
_SHOWN = 200
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})
_GUARDS = frozenset({"if-match", "if-none-match"})


@dataclass(frozen=True, slots=True)
class Send:
    """A request.

    Attributes:
        method: in upper case.
        path: from the root, such as `/v1/jobs`.
        query: pairs; a name may stand several times.
        headers: beside those that every request has.
        body: JSON, or None.
        timeout: seconds for this one try.
    """

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout: float = 30.0

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does what sending it once does.

        A POST is where it carries an Idempotency-Key. A change that demands a version is not: if
        the first one was carried out, the second one finds a newer version and is refused.
        """
        names = {name.lower() for name in self.headers}
        if self.method == "POST":
            return "idempotency-key" in names
        return self.method in _REPEATABLE and not names & _GUARDS


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; the names of its headers are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer.

    Attributes:
        words: what happened.
        sent: whether the request may have arrived.
        hopeless: whether another try would be lost for the same reason.
    """

    words: str
    sent: bool
    hopeless: bool = False


Flow: TypeAlias = Generator[Send | Pause, Reply | Lost | None, T]


@dataclass(frozen=True, slots=True)
class Policy:
    """How long and how often a call is tried.

    Attributes:
        timeout: seconds for one try.
        within: seconds for all tries of a call and the pauses between them.
        tries: at most so many.
    """

    timeout: float = 30.0
    within: float = ENDLESS
    tries: int = 4


def exchange(url: str, send: Callable[[float], Send], policy: Policy, now: Now) -> Flow[Reply]:
    """Send a request, again where that is safe and may help; the answer, whatever its status.

    Tried again are lost connections and answers that ask to wait (429, 502 to 504, and 409 with
    Retry-After); with growing pauses, or as long as the answer says, up to half a minute.

    Args:
        url: the API's address, for messages.
        send: makes the request with a timeout.
        policy: how long and how often.
        now: seconds of a clock that never goes back.

    Raises:
        UnreachableError: no answer.
    """
    delay, ends = _FIRST_DELAY, now() + policy.within
    refused: Reply | None = None
    for left in range(policy.tries - 1, -1, -1):
        pause = delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        request = send(min(policy.timeout, max(ends - now(), _SHORTEST)))
        outcome = yield request
        if isinstance(outcome, Reply):
            asked = retry_after(outcome)
            pause = max(pause, asked or 0)
            over = pause > _LONGEST_DELAY or now() + pause >= ends
            if not left or over or not _asks_to_wait(outcome, request, asked):
                return outcome
            refused = outcome
        elif isinstance(outcome, Lost):
            over = now() + pause >= ends
            if over and refused is not None:
                return refused  # it says more than that the time was over before the next one
            unsure = outcome.sent and not request.repeatable
            if not left or over or unsure or outcome.hopeless:
                more = "; the request may have been carried out all the same" if unsure else ""
                raise UnreachableError(
                    f"{url} does not answer: {outcome.words}{more}", may_have_arrived=outcome.sent
                )
        yield Pause(pause)
        delay *= 2
    raise AssertionError("the last try returns or raises")


def _asks_to_wait(reply: Reply, request: Send, asked: float | None) -> bool:
    if reply.status in _GATEWAYS:
        return request.repeatable  # it may have been carried out behind a gateway's back
    return reply.status == _RATE_LIMITED or (reply.status == _IN_PROGRESS and asked is not None)


def decoded(url: str, reply: Reply) -> Any:  # noqa: ANN401 - any JSON
    """The JSON of an answer; None where it has none.

    Raises:
        ApiError: the API refused the request.
        UnexpectedAnswerError: it is not JSON.
    """
    if reply.status >= _FIRST_ERROR:
        raise _error(reply)
    if reply.status in _REDIRECTS:
        where = reply.headers.get("location", "another address")
        raise UnexpectedAnswerError(f"{url} sends on to {where[:_SHOWN]}: use that address")
    if reply.status == _NO_CONTENT or not reply.content:
        return None
    try:
        return json.loads(reply.content)
    except ValueError:
        kind = reply.headers.get("content-type", "nothing known")
        raise UnexpectedAnswerError(
            f"What answers at {url} is not Tickrail's API: no JSON but {kind}"
        ) from None


def retry_after(reply: Reply) -> float | None:
    """The seconds that an answer asks to wait."""
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _error(reply: Reply) -> ApiError:
    """The error of a problem document, or of whatever else came."""
    asked = retry_after(reply)
    try:
        document = json.loads(reply.content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "code" not in document:
        shown = " ".join(reply.content.decode("utf-8", "replace").split())[:_SHOWN] or reply.reason
        detail = f"HTTP {reply.status}: {shown}"
        return ApiError(reply.status, "unknown", detail, retry_after=asked)
    found = document.get("errors") or ()
    problems = tuple(
        ApiProblem(
            str(p.get("pointer", "")), str(p.get("message", "")), str(p.get("expected") or "")
        )
        for p in found
        if isinstance(p, dict)
    )
    code = str(document["code"])
    return error_class(code, reply.status)(
        reply.status,
        code,
        str(document.get("detail") or document.get("title") or reply.reason),
        problems,
        str(document.get("request_id") or ""),
        asked,
    )


Now: TypeAlias = Callable[[], float]
