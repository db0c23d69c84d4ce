"""What the edge says with every answer, and to pages of other origins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs
from tests.support.api import served
from tests.support.clock import FakeClock

from tickrail.core.errors import TickrailError
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.store.session import DatabaseSettings
from tickrail_api.app import ApiSettings, create_app
from tickrail_api.edge import MAX_HEAD, EdgeSettings
from tickrail_api.openapi import openapi_document

_made: dict[str, Any] = {}
PAGE = "https://console.example.org"


@contextmanager
def client(**edge: Any) -> Iterator[tuple[httpx.Client, FastAPI]]:
    """An API whose database is never asked."""
    settings = ApiSettings(DatabaseSettings("host=127.0.0.1 port=1"), 4, edge=EdgeSettings(**edge))
    app = create_app(settings, FakeClock(), PrometheusMetrics())
    # The document takes half a second to make and is the same for every application.
    if not _made:
        _made.update(openapi_document(app))
    app.openapi_schema = _made
    with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as made:
        yield made, app
    app.state.parts.database.close()


@pytest.mark.parametrize("path", ["/healthz", "/docs", "/openapi.json", "/nothing", "/v1/jobs"])
def test_every_answer_is_safe_to_show(path: str) -> None:
    with client() as (asked, _):
        headers = asked.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-request-id"]
    assert "strict-transport-security" not in headers
    assert not [name for name in headers if name.startswith("access-control")]


def test_tls_in_front_is_said_where_it_is_set() -> None:
    with client(hsts=31_536_000) as (asked, _):
        said = asked.get("/healthz").headers["strict-transport-security"]
    assert said == "max-age=31536000; includeSubDomains"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((), PAGE, None),
        ((PAGE,), PAGE, PAGE),
        ((PAGE,), "https://evil.example", None),
        ((PAGE,), PAGE + ".evil.example", None),
        ((PAGE,), "null", None),
        ((PAGE,), None, None),
        (("*",), "https://any.example", "https://any.example"),
    ],
)
def test_only_pages_of_these_origins_read_answers(
    origins: tuple[str, ...], origin: str | None, allowed: str | None
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    with client(origins=frozenset(origins)) as (asked, _):
        found = asked.get("/healthz", headers=headers).headers
        ask = {**headers, "Access-Control-Request-Method": "PUT"}
        before = asked.options("/v1/jobs/{job}", headers=ask)
    assert found.get("access-control-allow-origin") == allowed
    assert ("vary" in found) == bool(origins)
    assert before.status_code == 204
    assert before.headers.get("access-control-allow-origin") == allowed
    assert "access-control-allow-credentials" not in before.headers
    if allowed is not None:
        assert "ETag" in found["access-control-expose-headers"]
        assert "PUT" in before.headers["access-control-allow-methods"]
        for name in ("Authorization", "If-Match", "Idempotency-Key"):
            assert name in before.headers["access-control-allow-headers"]


def test_a_line_and_headers_within_their_bound() -> None:
    with client() as (asked, _):
        assert asked.get("/healthz", headers={"X": "a" * (MAX_HEAD // 2)}).status_code == 200
        refused = asked.get("/healthz", headers={"X": "a" * MAX_HEAD})
        assert (refused.status_code, refused.json()["code"]) == (431, "headers_too_large")
        assert asked.get("/healthz?" + "a" * (MAX_HEAD - 20)).status_code == 431


def test_a_method_that_a_path_does_not_take() -> None:
    with client() as (asked, _):
        refused = asked.request("BREW", "/v1/jobs")
    assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")
    assert set(refused.headers["allow"].split(", ")) == {"GET", "POST", "HEAD", "OPTIONS"}


def test_the_log_says_who_asked_for_what_and_got_how_much() -> None:
    with capture_logs() as written, client() as (asked, _):
        answer = asked.get("/v1/jobs/a-b", headers={"X-Request-Id": "r-1"})
        asked.get("/healthz")
    [line] = [entry for entry in written if entry["event"] == "request"]
    assert line.pop("ms") >= 0
    assert line == {
        "event": "request", "log_level": "info", "method": "GET", "path": "/v1/jobs/a-b",
        "route": "/v1/jobs/{job}", "status": 401, "bytes_in": 0,
        "bytes_out": len(answer.content), "request_id": "r-1", "caller": "",
        "address": "127.0.0.1",
    }  # fmt: skip


def test_a_head_is_logged_and_counted_as_one() -> None:
    with capture_logs() as written, client() as (asked, app):
        assert asked.head("/docs").status_code == 200
        metrics, _ = app.state.metrics.render("")
    [line] = [entry for entry in written if entry["event"] == "request"]
    assert (line["method"], line["route"], line["bytes_out"]) == ("HEAD", "/docs", 0)
    counted = b'tickrail_http_requests_total{method="HEAD",route="/docs",status="200"} 1.0'
    assert counted in metrics


def test_the_log_says_what_the_caller_of_a_failed_request_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = TickrailError("PostgreSQL refuses a statement: boom.")

    def refused(*_: object) -> None:
        raise failure

    with capture_logs() as written, client() as (asked, app):
        monkeypatch.setattr(type(app.state.parts.authenticator), "authenticate", refused)
        answer = asked.get("/v1/jobs", headers={"X-Request-Id": "r-1"})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "boom" not in answer.text
    [line] = [entry for entry in written if entry["event"] == "request_failed"]
    assert line == {
        "event": "request_failed", "log_level": "error", "path": "/v1/jobs", "request_id": "r-1",
        "error": str(failure), "exc_info": failure,
    }  # fmt: skip


def test_where_the_database_is_stays_in_the_log() -> None:
    key = {"Authorization": "Bearer trk_aaaaaaaaaaaaaaaa_" + "x" * 43}
    with capture_logs() as written, client() as (asked, _):
        answers = [asked.get("/v1/jobs", headers=key), asked.get("/readyz")]
    assert [a.status_code for a in answers] == [503, 503]
    for answer in answers:
        assert "127.0.0.1" not in answer.text
        assert "connection" not in answer.text
    [line] = [entry for entry in written if entry["event"] == "request"]
    [unready] = [entry for entry in written if entry["event"] == "not_ready"]
    assert "127.0.0.1" in line["error"]
    assert "127.0.0.1" in unready["problems"]["postgresql"]
    assert not [entry for entry in written if entry["log_level"] == "error"]


def test_a_process_that_stops_is_not_ready() -> None:
    with client() as (asked, app):
        app.state.stopping.set()
        told = asked.get("/readyz")
    assert told.status_code == 503
    assert list(told.json()["problems"]) == ["stopping"]
