"""Requests that are wrong in form: each gets a problem document, none a trace or a 500."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from tests.support.api import Caller, World, webhook

pytestmark = pytest.mark.integration


def job_with(text: str) -> bytes:
    """A job's document with a member `x` written by hand in its payload."""
    return json.dumps(webhook("a", payload={"x": "HERE"})).replace('"HERE"', text).encode()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"{}{}", 400),
        (b"[" * 100_000 + b"]" * 100_000, 413),
        (job_with("[" * 62 + "]" * 62), 201),
        (job_with("[" * 63 + "]" * 63), 400),
        (job_with('"\\u0000"'), 422),
        (job_with('{"a\\u0000": 1}'), 422),
        (job_with('"\\ud800"'), 400),
        (job_with("9" * 4301), 400),
        (job_with("-" + "9" * 25), 422),
        (job_with("18446744073709551616"), 422),
        (job_with("18446744073709551615"), 201),
        (job_with("1e400"), 400),
        (job_with("NaN"), 400),
        (b'{"name": "a\\u0000b"}', 422),
        (b'{"name": "\\ud800"}', 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"", 422),
        (job_with('"' + "x" * 300_000 + '"'), 422),
        (b" " * (1024 * 1024) + b"{}", 413),
    ],
    ids=range(23),
)
def test_bodies(acme: Caller, raw: bytes, status: int) -> None:
    answer = acme.call("POST", "/v1/jobs", raw=raw, expect=status)
    if status == 422:
        assert answer.json()["errors"]


def test_a_body_that_is_not_there_is_told_so(acme: Caller) -> None:
    acme.create("a")
    for verb, path in (
        ("POST", "/v1/jobs"),
        ("PATCH", "/v1/jobs/name:a"),
        ("PUT", "/v1/secrets/s"),
    ):
        [problem] = acme.call(verb, path, raw=b"", expect=422).json()["errors"]
        assert (problem["pointer"], problem["message"]) == ("", "is empty")
    [problem] = acme.call("POST", "/v1/jobs", raw=b"null", expect=422).json()["errors"]
    assert (problem["pointer"], problem["message"]) == ("", "is null")
    [item] = acme.post("/v1/jobs/batch", {"jobs": [None]}, expect=200)["items"]
    assert [e["message"] for e in item["error"]["errors"]] == ["is null"]


def test_a_number_is_stored_as_it_was_sent(acme: Caller) -> None:
    acme.call("POST", "/v1/jobs", raw=job_with("18446744073709551615"), expect=201)
    assert acme.get("/v1/jobs/name:a")["payload"] == {"x": 18446744073709551615}


def test_a_million_keys_are_too_much(acme: Caller) -> None:
    body = json.dumps({f"k{n}": n for n in range(1_000_000)}).encode()
    assert acme.call("POST", "/v1/jobs", raw=body, expect=413).json()["code"] == "too_large"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/xml"},
        {"Content-Encoding": "gzip"},
        {"Content-Type": "a" * 500},
    ],
)
def test_bodies_of_another_kind(acme: Caller, headers: dict[str, str]) -> None:
    acme.call("POST", "/v1/jobs", webhook("a"), headers=headers, expect=400)


def test_kinds_of_json_are_taken(acme: Caller) -> None:
    acme.create("a")
    for kind in ("application/merge-patch+json", "application/json; charset=utf-8"):
        acme.call(
            "PATCH", "/v1/jobs/name:a", {"description": kind}, headers={"Content-Type": kind},
            expect=200,
        )  # fmt: skip


def test_a_body_without_an_end_is_cut_off_at_its_bound(world: World, acme: Caller) -> None:
    """A length that is not said: refused as soon as the bound is passed."""
    address = (world.client.base_url.host, world.client.base_url.port or 0)
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {acme.token}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(address, timeout=20) as s:
        s.sendall(head.encode())
        answer = b""
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        for _ in range(17):
            s.sendall(chunk)
        while b"\r\n\r\n" not in answer:
            answer += s.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ")


def raw_request(world: World, text: bytes) -> bytes:
    """What the server answers to these bytes."""
    address = (world.client.base_url.host, world.client.base_url.port or 0)
    with socket.create_connection(address, timeout=20) as s:
        s.sendall(text)
        answer = b""
        # A server that refuses what it has not read to its end resets the connection.
        with suppress(ConnectionResetError):
            while chunk := s.recv(65536):
                answer += chunk
    return answer


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer \xe9",
        b"Bearer \xf0\x9f\x98\x80",
        b"Basic YTpi",
        b"Bearer trk_",
        b"Bearer trk_aaaaaaaaaaaaaaaa_" + b"x" * 42,
        b"Bearer trk_aaaaaaaaaaaaaaaa_" + b"x" * 43,
        b"Bearer trk_aaaaaaaaaaaaaaaa_" + b"x" * 4000,
        b"Bearer trk_aaaaaaaaaaaaaaaa_" + b"\xe9" * 43,
    ],
)
def test_keys_that_are_none_hear_the_same(world: World, value: bytes) -> None:
    request = b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: %b\r\n\r\n"
    answer = raw_request(world, request % value)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: Bearer" in head
    found = json.loads(body)
    assert (found["code"], found["detail"]) == (
        "unauthenticated",
        "Send a valid API key: `Authorization: Bearer trk_...`.",
    )


def test_two_keys_or_none_or_a_huge_one(world: World, acme: Caller) -> None:
    line = f"Authorization: Bearer {acme.token}\r\n"
    start = "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    for lines in (line * 2, ""):
        assert raw_request(world, f"{start}{lines}\r\n".encode()).startswith(b"HTTP/1.1 401 ")
    assert raw_request(world, f"{start}{line}\r\n".encode()).startswith(b"HTTP/1.1 200 ")
    for bad, status in (("x" * 100_000, b"431"), ("x" * 1_000_000, b"431"), ("a\x00b", b"400")):
        answer = raw_request(world, f"{start}Authorization: {bad}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 %b " % status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/jobs/", 404),
        ("GET", "/v1/jobs/a/b/c", 404),
        ("GET", "/v1/jobs/not-an-id", 404),
        ("GET", "/v1/jobs/name:UPPER", 404),
        ("GET", "/v1/jobs/name:%00", 404),
        ("GET", "/v1/jobs/%ff", 404),
        ("GET", "/v1/launches/ffffffff-ffff-8fff-bfff-ffffffffffff", 404),
        ("GET", "/v1/launches/0", 404),
        ("GET", "/metrics", 404),
        ("DELETE", "/v1/jobs", 405),
        ("PUT", "/v1/launches", 405),
        ("TRACE", "/v1/jobs", 405),
        ("BREW", "/v1/jobs", 405),
        ("POST", "/docs", 405),
    ],
)
def test_paths_and_methods(acme: Caller, method: str, path: str, status: int) -> None:
    answer = acme.call(method, path, expect=status)
    if status == 405:
        assert "GET" in answer.headers["allow"]
    else:
        assert answer.json()["code"] == "not_found"


def test_head_and_options(world: World, acme: Caller) -> None:
    acme.create("a")
    head = acme.call("HEAD", "/v1/jobs/name:a", expect=200)
    get = acme.call("GET", "/v1/jobs/name:a", expect=200)
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"]
    assert head.headers["etag"] == get.headers["etag"]
    options = world.client.options("/v1/jobs/name:a")
    assert options.status_code == 204
    assert set(options.headers["allow"].split(", ")) == {
        "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS",
    }  # fmt: skip
    assert "access-control-allow-origin" not in options.headers


def test_each_answer_names_its_request(acme: Caller) -> None:
    made = acme.call("GET", "/v1/jobs", headers={"X-Request-Id": "abc-1"})
    assert made.headers["x-request-id"] == "abc-1"
    odd: Any = {"X-Request-Id": "a b\xe9".encode("latin-1")}
    missing = acme.call("GET", "/v1/jobs/name:a", headers=odd, expect=404)
    assert missing.json()["request_id"] == missing.headers["x-request-id"]
    assert len(missing.headers["x-request-id"]) == 36


def test_a_failure_inside_is_told_without_a_trace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(type(world.app.state.parts.authenticator), "authenticate", broken)
    answer = world.client.get("/v1/jobs")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_the_documentation_comes_from_here_alone(world: World) -> None:
    page = world.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "https://" not in page.text
    document = world.client.get("/openapi.json").json()
    assert document == world.answers.document
