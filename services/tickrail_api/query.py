"""The query of a request: what no route takes, and what is given twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request

from tickrail.core.errors import InvalidInputError, Problem
from tickrail_api.problems import unknown_parameter
from tickrail_api.threads import directly


@directly
def no_parameters(request: Request) -> None:
    """The dependency of a route that takes no query parameters.

    Raises:
        InvalidInputError: there are some.
    """
    if request.query_params:
        document, operation = described(request)
        problems = [unknown_parameter(n, document, operation) for n in request.query_params]
        raise InvalidInputError("A query parameter is not valid.", problems)


def check_given_once(request: Request) -> None:
    """Refuse a query parameter of one value that is given twice: no framework says which counts.

    Raises:
        InvalidInputError: one is; with each that is.
    """
    given = [name for name, _ in request.query_params.multi_items()]
    if len(given) == len(set(given)):
        return
    _, operation = described(request)
    problems = [
        Problem(f"?{p['name']}", "is given twice", "one value")
        for p in operation.get("parameters", ())
        if p["in"] == "query" and given.count(p["name"]) > 1 and p["schema"].get("type") != "array"
    ]
    if problems:
        raise InvalidInputError("A query parameter is not valid.", problems)


def described(request: Request) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The OpenAPI document, and what it says of the operation that is asked for."""
    document = request.app.openapi_schema or {}
    path = document.get("paths", {}).get(request.scope["tickrail.template"], {})
    return document, path.get(request.method.lower(), {})
