"""What a webhook sends: templates filled in, signatures, redirects. No network."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook as Verifier
from tests.support.runs import make_run

from tickrail.executors.webhook_request import (
    CertainError,
    Outgoing,
    outgoing,
    prepare,
    redirected,
    signed,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URL = "https://hooks.example/in"
SECRETS = {"token": b"Bearer hush-7f3a\n", "ring": b"whsec_" + base64.b64encode(b"k" * 24)}


def sent(payload: Any = None, secrets: dict[str, bytes] | None = None, **fields: Any) -> Outgoing:
    run = make_run({"webhook": {"url": URL, **fields}}, payload=payload, launch_id=UUID(int=9))
    return outgoing(prepare(run.target), run, SECRETS if secrets is None else secrets, NOW)


def headers(request: Outgoing) -> dict[bytes, bytes]:
    found = request.headers(b"Tickrail")
    assert len({name.lower() for name, _ in found}) == len(found)
    return dict(found)


def refused(**fields: Any) -> str:
    with pytest.raises(CertainError) as error:
        sent(**fields)
    outcome = error.value.outcome
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("invalid_target", True, False)
    return outcome.message


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://hooks.example/u/{{ payload.id }}", b"/u/a%2Fb%3F%23%26"),
        (
            "https://hooks.example/{{ payload.id }}?{{ payload.id }}=",
            b"/a%2Fb%3F%23%26?a%2Fb%3F%23%26=",
        ),
        ("https://hooks.example?q={{ payload.n }}", b"/?q=7"),
        ("https://hooks.example/{{ payload.u }}", b"/%C3%BC%20%0D%0A"),
        ("https://hooks.example/{{ job.name }}/{{ attempt }}", b"/nightly/2"),
        ("https://hooks.example/a/../b", b"/a/../b"),
        ("https://hooks.example/v{{ payload.dots }}", b"/v.."),
    ],
)
def test_urls_are_filled_in_and_quoted(url: str, path: bytes) -> None:
    payload = {"id": "a/b?#&", "n": 7, "u": "ü \r\n", "dots": ".."}
    request = sent(payload, url=url)
    assert request.to.path == path
    assert request.to.host == "hooks.example"


def test_a_value_does_not_leave_its_place_in_the_path() -> None:
    for url in ("https://h.example/a/{{ payload.x }}/b", "https://h.example/.{{ payload.dot }}"):
        assert "leave its place" in refused(url=url, payload={"x": "..", "dot": "."})


def test_bodies() -> None:
    payload = {"n": 1.5, "list": [1], "text": 'a"b', "big": 2**80}
    cases: list[tuple[Any, bytes, bytes]] = [
        (None, json.dumps(payload, separators=(",", ":")).encode(), b"application/json"),
        ("n={{ payload.n }}", b"n=1.5", b"text/plain; charset=utf-8"),
        ("{{ payload.text }}", b'a"b', b"text/plain; charset=utf-8"),
        ("{{ payload.list }}", b"[1]", b"application/json"),
        ({"t": "{{ payload.text }}!"}, b'{"t":"a\\"b!"}', b"application/json"),
        (["{{ payload.list }}", "{{ launch.id }}"],
         b'[[1],"00000000-0000-0000-0000-000000000009"]', b"application/json"),
        ([], b"[]", b"application/json"),
        (False, b"false", b"application/json"),
        (0, b"0", b"application/json"),
        ("", b"", b""),
        ({"b": "{{ payload.big }}"}, b'{"b":%d}' % 2**80, b"application/json"),
    ]  # fmt: skip
    for body, expected, kind in cases:
        request = sent(payload, body=body)
        assert request.body == expected
        assert headers(request).get(b"Content-Type", b"") == kind
        assert headers(request)[b"Content-Length"] == b"%d" % len(expected)


def test_content_types() -> None:
    xml = sent(body="<a/>", content_type="application/xml; charset=utf-8")
    assert headers(xml)[b"Content-Type"] == b"application/xml; charset=utf-8"
    own = sent(body="<a/>", headers={"content-type": "text/xml"})
    assert headers(own)[b"content-type"] == b"text/xml"


def test_header_values_are_templates_or_secrets() -> None:
    given = {
        "X-Order": "order {{ payload.id }} ",
        "Authorization": {"secret": "token"},
        "X-Plain": r"\{{ }}",
    }
    found = headers(sent({"id": 7}, headers=given))
    assert found[b"X-Order"] == b"order 7"
    assert found[b"Authorization"] == b"Bearer hush-7f3a"
    assert found[b"X-Plain"] == b"{{ }}"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": URL + "/{{ payload.absent }}"}, "no absent"),
        ({"body": {"a": ["{{ payload.absent.b }}"]}}, "no absent"),
        ({"headers": {"X": "{{ payload.absent }}"}}, "no absent"),
        ({"headers": {"X": "{{ payload.line }}"}}, "the header X"),
        ({"headers": {"X": "{{ payload.wide }}"}}, "the header X"),
        ({"headers": {"X": "{{ payload.long }}"}}, "the header X"),
        ({"headers": {"X": {"secret": "pem"}}}, "the header X"),
        ({"url": URL + "?q={{ payload.long }}"}, "the URL cannot be called"),
        ({"body": "{{ payload.long }}" * 180}, "more than 1048576 characters"),
        ({"body": ["{{ payload.quotes }}"] * 90}, "the body has"),
        ({"signature": {"secrets": [{"secret": "broken"}]}}, "no base64"),
    ],
)
def test_what_cannot_be_sent(fields: dict[str, Any], said: str) -> None:
    secrets = {"pem": b"line\nline", "broken": b"whsec_!!!"}
    payload = {"line": "a\r\nHost: x", "wide": "€", "long": "x" * 6000, "quotes": '"' * 6000}
    message = refused(payload=payload, secrets=secrets, **fields)
    assert said in message
    assert "line\nline" not in message


def test_the_known_signature() -> None:
    """F-15: over the bytes that are sent, not over the same JSON written again."""
    secret = [("s", b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")]
    found = dict(signed("msg_0001", NOW, b'{"b":1, "a":2}', secret))
    assert found == {
        b"webhook-id": b"msg_0001",
        b"webhook-timestamp": b"1767225600",
        b"webhook-signature": b"v1,3b2M3sdO5/F1Gkecyoy04MK7WO7k7jeWbBNuYXIAVDI=",
    }
    again = dict(signed("msg_0001", NOW, b'{"b":1,"a":2}', secret))
    assert again[b"webhook-signature"] == b"v1,kEE0xZFAOAw+lwR46oBkUOwyfpC5GgMTocPqVJ3FNWw="


@pytest.mark.parametrize("secret", [b"whsec_" + base64.b64encode(b"k" * 24), b"raw text\n"])
def test_another_implementation_signs_the_same(secret: bytes) -> None:
    key = secret.decode() if secret.startswith(b"whsec_") else secret.strip()
    expected = Verifier(key).sign("msg", NOW, '{"a":"\u00fc"}')
    found = dict(signed("msg", NOW, '{"a":"\u00fc"}'.encode(), [("s", secret)]))
    assert found[b"webhook-signature"] == expected.encode()


def go(request: Outgoing, status: int, location: str) -> Outgoing:
    return redirected(request, status, location.encode("latin-1"))


@pytest.mark.parametrize(
    ("method", "status", "after"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("PUT", 301, "PUT"),
        ("PUT", 303, "GET"),
        ("GET", 301, "GET"),
        ("HEAD", 303, "HEAD"),
        ("DELETE", 307, "DELETE"),
    ],
)
def test_methods_after_a_redirect(method: str, status: int, after: str) -> None:
    headers_given = {"Content-Language": "en", "X-Team": "a"}
    request = go(sent({"a": 1}, method=method, headers=headers_given), status, "/other?x=1")
    assert (request.method, request.to.path) == (after, b"/other?x=1")
    found = headers(request)
    assert found[b"X-Team"] == b"a"
    assert (b"Content-Type" in found) == bool(request.body)
    if after == "GET" and method != "GET":
        assert b"Content-Language" not in found
    if after == method and method not in ("GET", "HEAD"):
        assert request.body == b'{"a":1}'


@pytest.mark.parametrize(
    ("location", "same"),
    [
        ("/x", True),
        ("https://hooks.example:443/x", True),
        ("//HOOKS.example/x", True),
        ("https://other.example/x", False),
        ("https://hooks.example:8443/x", False),
        ("//sub.hooks.example/x", False),
    ],
)
def test_what_another_origin_does_not_get(location: str, same: bool) -> None:
    fields = {
        "headers": {
            "Authorization": "Basic YTpi",
            "Cookie": "a=b",
            "X-Key": {"secret": "token"},
            "X-Team": "a",
        },
        "signature": {"secrets": [{"secret": "ring"}]},
    }
    found = headers(go(sent({"a": 1}, **fields), 307, location))
    hidden = {b"Authorization", b"Cookie", b"X-Key", b"webhook-signature", b"webhook-id"}
    assert hidden & found.keys() == (hidden if same else set())
    assert found[b"X-Team"] == b"a"
    assert b"Idempotency-Key" in found


@pytest.mark.parametrize(
    "location",
    [
        "http://hooks.example/x",
        "ftp://hooks.example/",
        "https://user@hooks.example/",
        "https://hooks.example:99999/",
        "https://hooks.example/a b",
        "javascript:alert(1)",
        "/" + "x" * 3000,
    ],
)
def test_redirects_that_lead_nowhere(location: str) -> None:
    with pytest.raises(CertainError) as error:
        go(sent({"a": 1}), 302, location)
    assert error.value.outcome.outcome == "bad_redirect"
    assert error.value.outcome.certain


def test_a_redirect_in_utf_8() -> None:
    request = redirected(sent(), 302, "/ü".encode())
    assert request.to.path == b"/%C3%BC"


@pytest.mark.parametrize(
    "fields",
    [
        {"body": ["{{ payload }}" * 200] * 50},
        {"url": URL + "/" + "{{ payload }}" * 200},
        {"headers": {f"x-{n}": "{{ payload }}" * 200 for n in range(20)}},
    ],
)
def test_a_small_target_does_not_grow_without_bound(fields: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"payload": "x" * 60_000, **fields}
    assert "more than 1048576 characters" in refused(**whole)
