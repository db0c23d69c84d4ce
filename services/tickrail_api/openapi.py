"""The OpenAPI document: what the framework knows of the routes, and our documents and examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tickrail_api.call import DEMANDS
from tickrail_api.refusals import Operation, describe
from tickrail_api.schemas.backfill import CancelBackfill, NewBackfill
from tickrail_api.schemas.base import ProblemDocument
from tickrail_api.schemas.calendar import NewCalendar
from tickrail_api.schemas.dead_letter import PurgeMany, Redrive, RedriveMany
from tickrail_api.schemas.job import NewJob, Pause, Resume, SkipNext, Trigger
from tickrail_api.schemas.job_batch import NewJobs
from tickrail_api.schemas.key import NewApiKey, RotateApiKey
from tickrail_api.schemas.operation import PauseMany, ResumeMany
from tickrail_api.schemas.other import PreviewRequest
from tickrail_api.schemas.queue import NewQueue, NewTenant, PauseQueue, TenantReason
from tickrail_api.schemas.secret import NewSecret
from tickrail_api.schemas.usage import QuotaSettings

REQUESTS: Sequence[type[BaseModel]] = (
    NewJob,
    NewJobs,
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
    NewApiKey,
    RotateApiKey,
    NewQueue,
    PauseQueue,
    NewTenant,
    TenantReason,
    QuotaSettings,
)
"""The documents that requests hold; answers come with their routes."""
_REF = "#/components/schemas/{model}"
_JSON = "application/json"
_DESCRIPTION = """Jobs, their schedules and launches. JSON in and out; instants are RFC 3339 with an
offset, answered in UTC; durations are `30s`, `5m`, `1h30m`, `2d`. Errors are
`application/problem+json`. Lists are pages: `limit`, `cursor`, `next_cursor`. Every POST takes an
`Idempotency-Key`. Every path that takes a job's id also takes `name:<name>`."""

_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "trk_<id>_<secret>",
        "description": "An API key of a tenant, or an operator's.",
    },
    "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token of an issuer that the installation trusts (OpenID Connect), where"
        " one is set.",
    },
}
_PAUSE = re.compile(r"[.;:](?:\s|$)")
_UNCONDITIONAL = {
    ("post", "/v1/queues/{name}/pause"),
    ("post", "/v1/queues/{name}/resume"),
    ("delete", "/v1/tenants/{tenant}"),
    ("post", "/v1/tenants/{tenant}/suspend"),
    ("post", "/v1/tenants/{tenant}/resume"),
    ("put", "/v1/quotas/notify"),
}
"""What is right at every version of its subject, and so looks at none."""
_VERSION = r'"[1-9][0-9]{0,8}"'
_HEADERS = {
    "Tickrail-Tenant": (
        "With an operator's key: the tenant to work for, by id or name; audited.",
        r"^[a-z0-9][a-z0-9._-]{0,127}$",
        "acme",
    ),
    "Idempotency-Key": (
        "1 to 255 visible ASCII characters. The same request has the same answer for 24 hours.",
        r"^[!-~]{1,255}$",
        "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b",
    ),
    "If-Match": (
        'Only if it is at one of these versions, as answered in ETag: `"7"`; `*`: if it is there.',
        rf"^(\*|{_VERSION}(, ?{_VERSION}){{0,9}})$",
        '"7"',
    ),
    "If-None-Match": ("`*`: create only.", r"^\*$", "*"),
}
"""Headers of requests: what they mean and their form."""


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


def refusal(model: type[BaseModel], example: object, status: int) -> dict[int | str, Any]:
    """What a route says of an answer that is no success and no problem document."""
    content = {_JSON: {"examples": {"answer": {"value": example}}}}
    return {status: {"model": model, "description": "Not now.", "content": content}}


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
        components["securitySchemes"] = _SECURITY
        _tell_demands(app, document)
        for path, operations in document["paths"].items():
            for verb, operation in operations.items():
                _finish(document, path, verb, operation)
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


def _tell_demands(app: FastAPI, document: dict[str, Any]) -> None:
    """Say for programs what key each operation needs; its description says it for people."""
    for route in app.state.routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        demands = [DEMANDS[d.call] for d in route.dependant.dependencies if d.call in DEMANDS]
        for verb in route.methods or ():
            operation = document["paths"][route.path_format][verb.lower()]
            for demand in demands:
                # A route that demands one itself says which.
                operation.setdefault("x-tickrail-scope", demand.scope)
                operation["x-tickrail-operators"] = demand.operators


def _copy_examples(written: Mapping[str, Any], shown: dict[str, Any]) -> None:
    for kind, content in written.get("content", {}).items():
        if "examples" in content:
            shown["content"][kind]["examples"] = content["examples"]


def _title(description: str) -> str:
    """The beginning of a description, up to its first pause."""
    return _PAUSE.split(" ".join(description.split()), maxsplit=1)[0]


def _finish(document: dict[str, Any], path: str, verb: str, operation: dict[str, Any]) -> None:
    """What every operation has: security, headers and the form of errors."""
    operation["responses"].pop("422", None)
    operation["summary"] = _title(operation["description"])
    if not path.startswith("/v1/"):
        operation["security"] = []
        return
    operation["security"] = [{name: []} for name in _SECURITY]
    headers = ["Tickrail-Tenant"]
    if verb == "post":
        headers.append("Idempotency-Key")
    versioned = (
        "/v1/jobs/{job}",
        "/v1/calendars/{name}",
        "/v1/queues/{name}",
        "/v1/tenants/{tenant}",
    )
    if verb != "get" and path.startswith(versioned) and (verb, path) not in _UNCONDITIONAL:
        headers.append("If-Match")
    if verb == "put" and (verb, path) not in _UNCONDITIONAL:
        headers.append("If-None-Match")
    operation.setdefault("parameters", []).extend(
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": _HEADERS[name][0],
            "schema": {"type": "string", "pattern": _HEADERS[name][1]},
            "example": _HEADERS[name][2],
        }
        for name in headers
    )
    describe(document, Operation(path, verb, frozenset(headers)), operation["responses"])
