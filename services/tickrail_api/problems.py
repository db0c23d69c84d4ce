"""Errors as `application/problem+json` (RFC 9457); never a trace."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

from tickrail.core.errors import InvalidInputError, Problem, TickrailError

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER = "1"
_CODES = {404: "not_found", 405: "method_not_allowed", 408: "timeout"}
_HIDDEN = 500


def problem_body(
    status: int,
    code: str,
    title: str,
    detail: str,
    request_id: str,
    problems: Iterable[Problem] = (),
) -> bytes:
    """The document."""
    document: dict[str, Any] = {
        "type": f"urn:tickrail:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": _clean(detail),
        "errors": [
            {
                "pointer": _clean(p.pointer),
                "message": _clean(p.message),
                "expected": _clean(p.expected),
            }
            for p in problems
        ],
        "request_id": request_id,
    }
    return orjson.dumps(document)


def error_response(error: TickrailError, request_id: str) -> Response:
    """The answer for one of our errors."""
    headers: dict[str, str] = {}
    if error.retryable:
        headers["Retry-After"] = RETRY_AFTER
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="tickrail"'
    detail, problems = error.detail, error.problems
    if error.status >= _HIDDEN and error.status != HTTPStatus.SERVICE_UNAVAILABLE:
        detail, problems = "The request failed; the log says why.", ()
    return Response(
        problem_body(error.status, error.code, error.title(), detail, request_id, problems),
        error.status,
        headers,
        CONTENT_TYPE,
    )


def status_response(
    status: int, detail: str, request_id: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer for what the framework refuses: unknown path, wrong method."""
    code = _CODES.get(status, "malformed" if status < _HIDDEN else "internal")
    title = HTTPStatus(status).phrase.capitalize()
    return Response(
        problem_body(status, code, title, detail, request_id),
        status,
        dict(headers or {}),
        CONTENT_TYPE,
    )


def invalid_query(errors: Sequence[Mapping[str, Any]], known: Sequence[str]) -> InvalidInputError:
    """Our error for the framework's findings about query parameters."""
    problems = []
    for e in errors:
        where = [str(part) for part in e["loc"]]
        name = where[1] if len(where) > 1 else where[0]
        if e["type"] == "extra_forbidden":
            problems.append(unknown_parameter(name, known))
        else:
            problems.append(Problem(f"?{name}", str(e["msg"])[:300]))
    return InvalidInputError("A query parameter is not valid.", problems)


def unknown_parameter(name: str, known: Sequence[str]) -> Problem:
    """The problem of a query parameter that nobody knows."""
    near = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(sorted(known)) if known else "this path takes none"
    expected = f"did you mean {near[0]!r}?" if near else listed
    return Problem(f"?{name[:100]}", "is not a known parameter", expected)


def _clean(text: str) -> str:
    """Text that JSON can hold."""
    return text.encode("utf-8", "replace").decode()
