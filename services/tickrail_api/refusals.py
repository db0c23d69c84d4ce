"""Which errors each operation of the OpenAPI document names: from the one tree of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tickrail.core import errors
from tickrail.core.errors import TickrailError

KIND = "application/problem+json"
_REF = "#/components/responses/{name}"
_HIDDEN = frozenset({"settings", "method_not_allowed"})
"""Codes that no operation is answered with: where there is none, or no process."""
_TAKE_JOB = "/v1/jobs/{job}"


@dataclass(frozen=True, slots=True)
class Operation:
    """What decides about the errors of an operation."""

    path: str
    verb: str
    headers: frozenset[str]

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.verb != "get"

    @property
    def conditional(self) -> bool:
        """Whether it looks at a version."""
        return bool(self.headers & {"If-Match", "If-None-Match"})

    @property
    def names(self) -> bool:
        """Whether it gives a job or a tenant its name."""
        single = self.path == _TAKE_JOB and self.verb in {"put", "patch"}
        made = self.path in {"/v1/jobs", "/v1/jobs/batch", "/v1/tenants"} and self.verb == "post"
        return single or made or self.path == f"{_TAKE_JOB}/undelete" or "/restore" in self.path


def _always(_: Operation) -> bool:
    return True


_WHERE: Mapping[str, Callable[[Operation], bool]] = {
    "conflict": lambda o: o.writes,
    "name_taken": lambda o: o.names,
    "overlap": lambda o: o.path == f"{_TAKE_JOB}/trigger",
    # What another request does with the same key, or with a calendar of the job.
    "in_progress": lambda o: (
        "Idempotency-Key" in o.headers or (o.path == _TAKE_JOB and o.verb in {"put", "patch"})
    ),
    "idempotency_mismatch": lambda o: "Idempotency-Key" in o.headers,
    "precondition_failed": lambda o: o.conditional,
    "quota_exceeded": lambda o: o.writes,
    "setup": lambda o: o.path.startswith("/v1/secrets") and o.writes,
}
"""Codes that only some operations answer with; any other may come from each."""


def tree(root: type[TickrailError] = TickrailError) -> Iterator[type[TickrailError]]:
    """The errors of the core, in the order of the source."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def refusals(operation: Operation) -> Mapping[int, list[type[TickrailError]]]:
    """The errors that an operation answers with, by status."""
    found: dict[int, list[type[TickrailError]]] = {}
    for error in tree():
        if error.code not in _HIDDEN and _WHERE.get(error.code, _always)(operation):
            found.setdefault(error.status, []).append(error)
    return dict(sorted(found.items()))


def describe(document: dict[str, Any], operation: Operation, responses: dict[str, Any]) -> None:
    """Write the errors of an operation into its responses.

    Args:
        document: the OpenAPI document; each set of errors stands once among its components.
        operation: what it is.
        responses: its responses so far.
    """
    shared = document["components"].setdefault("responses", {})
    for status, listed in refusals(operation).items():
        name = "-".join([str(status), *(e.code for e in listed)])
        shared.setdefault(name, _response(status, listed))
        responses[str(status)] = {"$ref": _REF.format(name=name)}


def _response(status: int, listed: list[type[TickrailError]]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": " ".join(f"`{e.code}`: {e.title()}." for e in listed),
        "content": {
            KIND: {
                "schema": {"$ref": "#/components/schemas/ProblemDocument"},
                "examples": {e.code: {"value": _example(e)} for e in listed},
            }
        },
    }
    if any(e.retryable for e in listed):
        response["headers"] = {
            "Retry-After": {
                "description": "Seconds after which the same request may succeed.",
                "schema": {"type": "string", "pattern": "^[0-9]+$"},
            }
        }
    if status == HTTPStatus.UNAUTHORIZED:
        response["headers"] = {
            "WWW-Authenticate": {
                "description": "How to say who asks.",
                "schema": {"type": "string"},
            }
        }
    return response


def _example(error: type[TickrailError]) -> dict[str, Any]:
    invalid = error.code == "invalid"
    entry = {"pointer": "/name", "message": "is missing", "expected": "a name"}
    return {
        "type": f"urn:tickrail:problem:{error.code}",
        "title": error.title(),
        "status": error.status,
        "code": error.code,
        "detail": f"{error.title()}.",
        "errors": [entry] if invalid else [],
        "request_id": "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b",
    }
