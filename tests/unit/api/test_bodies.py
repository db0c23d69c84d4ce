"""JSON bodies within their bounds, quickly."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.support.cpu import own_cpu_seconds

from tickrail.core.definition import MAX_PAYLOAD, payload_problems, payload_size
from tickrail.core.documents import least_size
from tickrail.core.errors import MalformedError, TickrailError, TooLargeError
from tickrail_api.bodies import MAX_BODY, MOST_OPENED, parse_body, too_deep


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
        (b"[" * 40_000, "deeper than 64|not valid"),
        (b'{"a": 1, "a": 1}', "'a' stands there twice"),
        (b'[{"x": {"b": 1, "c": 2, "\\u0062": 3}}]', "'b' stands there twice"),
    ],
)
def test_refusals(body: bytes, words: str) -> None:
    with pytest.raises(TickrailError, match=words) as refused:
        parse_body(body, None)
    assert refused.value.status == (422 if words == "out of range" else 400)


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
        (b"[" * 30 + b"]" * 30 + b",") * 270_000,
    ],
    ids=["deep", "long number", "wide", "a large body of brackets"],
)
def test_the_worst_bodies_cost_little(body: bytes) -> None:
    began = own_cpu_seconds()
    with suppress(MalformedError, TooLargeError):
        parse_body(body, None)
    assert own_cpu_seconds() - began < 1.0


def test_how_many_objects_and_lists_a_body_holds() -> None:
    lists = b"[" + b",".join([b"[]"] * (MOST_OPENED - 2)) + b",{}]"
    assert len(parse_body(lists, None)) == MOST_OPENED - 1
    with pytest.raises(TooLargeError, match=f"more than {MOST_OPENED} objects"):
        parse_body(lists.replace(b"{}", b"[{}]"), None)
    # In a larger one as many more: here one in 20 bytes.
    one = b'{"a": "0123456789"},'
    assert len(parse_body(b"[" + one * MOST_OPENED + b"0]", None)) == MOST_OPENED + 1


@pytest.mark.parametrize(
    "payload",
    [
        b"[" + b"1," * 499_999 + b"1]",
        b"[" + b'"",' * 340_000 + b"1]",
        b"[" + b"1.5," * 250_000 + b"1]",
        b"{" + b",".join(b'"%d":1' % i for i in range(90_000)) + b"}",
        b"[" + b"1," * 131_000 + b"1]",
        b"[" + b'"",' * 87_000 + b"1]",
    ],
    ids=["ones", "texts", "fractions", "members", "ones that fit", "texts that fit"],
)
def test_a_payload_of_many_values_costs_little(payload: bytes) -> None:
    body = b'{"payload": ' + payload + b"}"

    def once() -> float:
        began = own_cpu_seconds()
        found = payload_problems(parse_body(body, None)["payload"])
        took = own_cpu_seconds() - began
        assert bool(found) == (len(payload) > MAX_PAYLOAD)
        return took

    assert min(once() for _ in range(5)) < 0.1


@pytest.mark.parametrize(
    "value",
    [1, "", "é", None, [], {}, [[]], [1, 2, 3], ["a", "b"], {"a": 1, "bc": [None, True, {}]},
     {"a": {"b": "c"}}, [[1], ["x", {"y": 1.5}]]],
)  # fmt: skip
def test_the_least_size_is_no_more_than_the_size(value: object) -> None:
    least = least_size(value, MAX_PAYLOAD)
    assert 0 < least <= payload_size(value)
    assert payload_size(value) <= 4 * least
    assert least_size([value] * 10, 5) > 5
