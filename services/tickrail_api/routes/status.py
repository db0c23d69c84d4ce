"""Without a key: /healthz, /readyz, the OpenAPI document and a page that shows it."""

from __future__ import annotations

from importlib.resources import files

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from tickrail_api.call import Answer, parts_of
from tickrail_api.openapi import answers, openapi_document
from tickrail_api.schemas.other import Status

router = APIRouter(tags=["status"])
_READY = {"status": "ok"}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@router.get("/healthz", responses=answers(Status, _READY))
def healthz() -> Response:
    """Whether the process lives."""
    return Answer(_READY).response()


@router.get("/readyz", responses=answers(Status, _READY))
def readyz(request: Request) -> Response:
    """Whether it can serve; names what is missing."""
    problems = parts_of(request).look.read()
    if problems:
        return Answer({"status": "unavailable", "problems": problems}, 503).response()
    return Answer(_READY).response()


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    return Response(orjson.dumps(openapi_document(request.app)), media_type="application/json")


@router.get("/docs", include_in_schema=False)
def docs() -> Response:
    """The OpenAPI document for people; from this process alone."""
    page = (files("tickrail_api") / "docs.html").read_text("utf-8")
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})
