"""The OpenAPI document: what the framework knows of the routes, and our documents and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tickrail_api.schemas.backfill import CancelBackfill, NewBackfill
from tickrail_api.schemas.base import ProblemDocument
from tickrail_api.schemas.calendar import NewCalendar
from tickrail_api.schemas.dead_letter import PurgeMany, Redrive, RedriveMany
from tickrail_api.schemas.job import NewJob, Pause, Resume, SkipNext, Trigger
from tickrail_api.schemas.operation import PauseMany, ResumeMany
from tickrail_api.schemas.other import PreviewRequest
from tickrail_api.schemas.queue import NewQueue, PauseQueue
from tickrail_api.schemas.secret import NewSecret

REQUESTS: Sequence[type[BaseModel]] = (
    NewJob,
    Pause,
    Resume,
    SkipNext,
    Trigger,
    PreviewRequest,
    NewCalendar,
    NewBackfill,
    CancelBackfill,
    PauseMany,
    ResumeMany,
    Redrive,
    RedriveMany,
    PurgeMany,
    NewSecret,
    NewQueue,
    PauseQueue,
)
"""The documents that requests hold; answers come with their routes."""
_REF = "#/components/schemas/{model}"
_JSON = "application/json"
_DESCRIPTION = """Jobs, their schedules and launches. JSON in and out; instants are RFC 3339 with an
offset, answered in UTC; durations are `30s`, `5m`, `1h30m`, `2d`. Errors are
`application/problem+json`. Lists are pages: `limit`, `cursor`, `next_cursor`. Every POST takes an
`Idempotency-Key`. Every path that takes a job's id also takes `name:<name>`."""

_HEADERS = {
    "Tickrail-Tenant": "With an operator's key: the tenant to work for, by id or name; audited.",
    "Idempotency-Key": "1 to 255 visible ASCII characters. The same request again within 24 hours"
    " gets the same answer, with `Idempotent-Replay: true`.",
    "If-Match": 'Go on only if the job is at one of these versions, as answered in ETag: `"7"`.',
    "If-None-Match": "`*`: create only.",
}


def body(
    model: type[BaseModel], *examples: object, required: bool = True, kind: str = _JSON
) -> dict[str, Any]:
    """What a route says of its request's body."""
    ref = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": required, "content": {kind: _content(ref, examples)}}}


def text_calendar(request: dict[str, Any], example: str) -> dict[str, Any]:
    """The body of a request, or an iCalendar file in its place."""
    schema = {"type": "string", "description": "An iCalendar file (RFC 5545) in UTF-8."}
    request["requestBody"]["content"]["text/calendar"] = _content(schema, [example])
    return request


def merge_patch(*examples: object, of: str = "NewJob") -> dict[str, Any]:
    """The body of a PATCH."""
    schema = {"type": "object", "description": f"A JSON merge patch (RFC 7396) of a {of}."}
    content = {"application/merge-patch+json": _content(schema, examples)}
    content[_JSON] = _content(schema, examples)
    return {"requestBody": {"required": True, "content": content}}


def answers(model: type[BaseModel], example: object, *statuses: int) -> dict[int | str, Any]:
    """What a route says of its answers of success (by default one: 200)."""
    return {
        status: {
            "model": model,
            "description": "Done." if status == 200 else "Made." if status == 201 else "Under way.",  # noqa: PLR2004 - statuses
            "content": {_JSON: {"examples": {"answer": {"value": example}}}},
        }
        for status in statuses or (200,)
    }


def page(example: object) -> dict[str, Any]:
    """The example of a page of one item."""
    return {"items": [example], "next_cursor": None}


def _content(schema: Mapping[str, Any], examples: Sequence[object]) -> dict[str, Any]:
    named = {f"example {i}": {"value": e} for i, e in enumerate(examples, 1)}
    return {"schema": dict(schema), "examples": named}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document; made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="Tickrail",
            version=version("tickrail"),
            description=_DESCRIPTION,
            routes=app.routes,
        )
        _restore_examples(app, document)
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        models: list[tuple[Any, Literal["serialization"]]] = [
            (m, "serialization") for m in (*REQUESTS, ProblemDocument)
        ]
        _, definitions = models_json_schema(models, ref_template=_REF)
        schemas.update(definitions["$defs"])
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for verb, operation in operations.items():
                _finish(path, verb, operation)
        app.openapi_schema = document
    return app.openapi_schema


def _restore_examples(app: FastAPI, document: dict[str, Any]) -> None:
    """Put the examples back as they were written: the framework drops members that are null."""
    for route in app.state.routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for verb in route.methods or ():
            operation = document["paths"][route.path_format][verb.lower()]
            for status, answer in route.responses.items():
                _copy_examples(answer, operation["responses"][str(status)])
            request = (route.openapi_extra or {}).get("requestBody")
            if request is not None:
                _copy_examples(request, operation["requestBody"])


def _copy_examples(written: Mapping[str, Any], shown: dict[str, Any]) -> None:
    for kind, content in written.get("content", {}).items():
        if "examples" in content:
            shown["content"][kind]["examples"] = content["examples"]


def _finish(path: str, verb: str, operation: dict[str, Any]) -> None:
    """What every operation has: security, headers and the form of errors."""
    operation["responses"].pop("422", None)
    if not path.startswith("/v1/"):
        operation["security"] = []
        return
    operation["security"] = [{"key": []}]
    headers = ["Tickrail-Tenant"]
    if verb == "post":
        headers.append("Idempotency-Key")
    versioned = (
        "/v1/jobs/{job}",
        "/v1/calendars/{name}",
        "/v1/queues/{name}",
        "/v1/tenants/{tenant}",
    )
    if verb != "get" and path.startswith(versioned):
        headers.append("If-Match")
    if verb == "put":
        headers.append("If-None-Match")
    operation.setdefault("parameters", []).extend(
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": _HEADERS[name],
            "schema": {"type": "string"},
        }
        for name in headers
    )
    problem = {"schema": {"$ref": _REF.format(model="ProblemDocument")}}
    operation["responses"]["default"] = {
        "description": "An error.",
        "content": {"application/problem+json": problem},
    }
