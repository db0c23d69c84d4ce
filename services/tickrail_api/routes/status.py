"""Without a key: /healthz, /readyz, the OpenAPI document and a page that shows it."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

import orjson
from fastapi import Request
from starlette.responses import HTMLResponse, Response

from tickrail_api.call import Answer, parts_of
from tickrail_api.openapi import answers, openapi_document, refusal
from tickrail_api.schemas.other import Status
from tickrail_api.threads import Routes

router = Routes(tags=["status"])
_READY = {"status": "ok"}
_NOT_READY = {"status": "unavailable", "problems": {"postgresql": "no answer for 2 s"}}
STOPPING = {"stopping": "the process finishes what is under way"}
"""What is wrong with a process that was asked to stop: no balancer sends it more."""


def _page() -> tuple[str, str]:
    """The page and its content security policy: its own style and script, nothing else."""
    page = (files("tickrail_api") / "docs.html").read_text("utf-8")
    hashes = {}
    for tag in ("style", "script"):
        inside = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = hashlib.sha256(inside.encode()).digest()
        hashes[tag] = f"'sha256-{base64.b64encode(digest).decode()}'"
    return page, (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )


_PAGE, _POLICY = _page()


@router.get("/healthz", responses=answers(Status, _READY))
def healthz() -> Response:
    """Whether the process lives."""
    return Answer(_READY).response()


@router.get("/readyz", responses=answers(Status, _READY) | refusal(Status, _NOT_READY, 503))
def readyz(request: Request) -> Response:
    """Whether it can serve; names what is missing."""
    problems = STOPPING if request.app.state.stopping.is_set() else parts_of(request).look.read()
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
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _POLICY})
