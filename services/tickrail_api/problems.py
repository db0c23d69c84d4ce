"""Errors as `application/problem+json` (RFC 9457); never a trace."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

from tickrail.core.documents import shown
from tickrail.core.errors import InvalidInputError, Problem, RateLimitedError, TickrailError

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER = "1"
_CODES = {404: "not_found", 405: "method_not_allowed", 408: "timeout"}
_HIDDEN = 500
_FAILED = "The request failed; the log says why."
_LONGEST = 100


def problem_body(
    status: int,
    code: str,
    title: str,
    detail: str,
    request_id: str,
    problems: Iterable[Problem] = (),
) -> bytes:
    """The document."""
    document = _document(status, code, title, detail, problems)
    return orjson.dumps({**document, "request_id": request_id})


def problem_document(error: TickrailError) -> dict[str, Any]:
    """The document of an error that stands inside an answer: without the request's id."""
    return _document(error.status, error.code, error.title(), *_told(error))


def is_hidden(error: TickrailError) -> bool:
    """Whether the caller is told less than the error says: the log has to say it."""
    failed = error.status >= _HIDDEN and error.status != HTTPStatus.SERVICE_UNAVAILABLE
    return failed or bool(error.public)


def _told(error: TickrailError) -> tuple[str, Sequence[Problem]]:
    """What the caller hears: no fault of ours, and nothing in a server's own words."""
    return (error.public or _FAILED, ()) if is_hidden(error) else (error.detail, error.problems)


def _document(
    status: int, code: str, title: str, detail: str, problems: Iterable[Problem]
) -> dict[str, Any]:
    return {
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
    }


def error_response(error: TickrailError, request_id: str) -> Response:
    """The answer for one of our errors."""
    headers: dict[str, str] = {}
    if error.retryable:
        headers["Retry-After"] = (
            str(error.retry_after) if isinstance(error, RateLimitedError) else RETRY_AFTER
        )
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="tickrail"'
    detail, problems = _told(error)
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


def invalid_query(
    errors: Sequence[Mapping[str, Any]], document: Mapping[str, Any], operation: Mapping[str, Any]
) -> InvalidInputError:
    """Our error for the framework's findings about query parameters.

    Args:
        errors: the findings.
        document: the OpenAPI document.
        operation: what it says of the route.
    """
    taken = {p["name"]: p["schema"] for p in operation.get("parameters", ()) if p["in"] == "query"}
    problems = []
    for e in errors:
        where = [str(part) for part in e["loc"]]
        name = where[1] if len(where) > 1 else where[0]
        if e["type"] == "extra_forbidden":
            problems.append(unknown_parameter(name, document, operation))
        else:
            right = str(e.get("ctx", {}).get("expected") or _right(taken.get(name, {})))
            problems.append(Problem(f"?{name}", _wrong(e), right))
    return InvalidInputError("A query parameter is not valid.", problems)


def _wrong(e: Mapping[str, Any]) -> str:
    given = e.get("input")
    if e["type"] == "string_too_long":
        return f"has {len(str(given))} characters"
    return f"is {shown(given)}"


def _right(schema: Mapping[str, Any]) -> str:
    """What a parameter may be, in words."""
    for one in schema.get("anyOf", (schema,)):
        match one.get("type"):
            case "array":
                return _right(one["items"])
            case "integer":
                return f"a whole number from {one.get('minimum')} to {one.get('maximum')}"
            case "boolean":
                return "true or false"
            case "string" if "maxLength" in one:
                return f"at most {one['maxLength']} characters"
    return ""


def unknown_parameter(
    name: str, document: Mapping[str, Any], operation: Mapping[str, Any]
) -> Problem:
    """The problem of a query parameter that nobody knows.

    Args:
        name: the parameter.
        document: the OpenAPI document.
        operation: what it says of the route.
    """
    known = sorted(p["name"] for p in operation.get("parameters", ()) if p["in"] == "query")
    member = _members(document, operation).get(name)
    if member is not None:
        value = "true" if member.get("type") == "boolean" else "..."
        expected = f'in the body: {{"{name}": {value}}}'
    elif near := difflib.get_close_matches(name[:_LONGEST], known, n=1):
        expected = f"did you mean {near[0]!r}?"
    else:
        expected = ", ".join(known) or "this path takes none"
    return Problem(f"?{name[:_LONGEST]}", "is not a known parameter", expected)


def _members(
    document: Mapping[str, Any], operation: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """The members of the body that an operation takes."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    found: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return found


def _clean(text: str) -> str:
    """Text that JSON can hold."""
    return text.encode("utf-8", "replace").decode()
