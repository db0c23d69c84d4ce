"""JSON bodies within their bounds, quickly."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.support.cpu import own_cpu_seconds

from tickrail.core.errors import MalformedError
from tickrail_api.bodies import MAX_BODY, parse_body, too_deep


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", None),
        (b"null", None),
        (b'{"a": [1, 2.5, "x"]}', {"a": [1, 2.5, "x"]}),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b'{"n": 12345678901234567890, "s": "99999999999999999999999"}',
         {"n": 12345678901234567890, "s": "9" * 23}),
        (b"1e300", 1e300),
    ],
)  # fmt: skip
def test_values(body: bytes, value: object) -> None:
    assert parse_body(body, "application/json") == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        (b"nul", "not valid JSON"),
        (b"NaN", "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
        (b'"\\ud800"', "not valid JSON"),
        (b"18446744073709551616", "out of range"),
        (b"-9223372036854775809", "out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "infinity"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper than 64"),
        (b"[" * 200_000, "deeper than 64|not valid"),
    ],
)
def test_refusals(body: bytes, words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        parse_body(body, None)


def test_depth_is_counted_to_the_level() -> None:
    value: object = 1
    for _ in range(64):
        value = [value]
    assert not too_deep(value)
    assert too_deep([value])
    assert too_deep({"a": value})
    assert not too_deep("text")


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "", None]
)
def test_what_a_plain_curl_sends_is_read(kind: str | None) -> None:
    assert parse_body(b'{"a":1}', kind) == {"a": 1}


@pytest.mark.parametrize(
    "kind", ["multipart/form-data; boundary=x", "application/xml", "x" * 1000, "text/html"]
)
def test_another_kind_of_content(kind: str) -> None:
    with pytest.raises(MalformedError, match="application/json"):
        parse_body(b"{}", kind)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON;charset=utf-8", "application/problem+json"]
)
def test_json_by_another_name(kind: str) -> None:
    assert parse_body(b"{}", kind) == {}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * (MAX_BODY // 2) + b"]" * (MAX_BODY // 2),
        b"[" + b"9" * (MAX_BODY - 2) + b"]",
        b"[" + b"[]," * 200_000 + b"[]]",
    ],
    ids=["deep", "long number", "wide"],
)
def test_the_worst_bodies_cost_little(body: bytes) -> None:
    began = own_cpu_seconds()
    with suppress(MalformedError):
        parse_body(body, None)
    assert own_cpu_seconds() - began < 1.0
