"""Odd bytes, texts, numbers and instants in every place that takes them: 4xx, no trace, no work.

The values are tried in each parameter and in each member of each example of the OpenAPI document.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.api.test_bad_input import raw_request
from tests.integration.api.test_callers import Route, routes
from tests.support.api import Caller, World, unused_id, webhook
from tests.support.cpu import least_cpu_seconds

pytestmark = pytest.mark.integration
CPU = 0.5
"""CPU seconds of server and client together for a request that is as large as may be: far below
what anything that is not linear would need."""
TEXTS = (
    "", "\x00", "a\x00b", "\u202eabc", "\u2066\u2069", "\U0001f600" * 50, "\ufeff", "\uffff",
    "e\u0301" * 300, "\u0130", "ß" * 5000, "x" * 20_000, "' or 1=1 --", "../../etc/passwd", "%00",
    "{{ payload }}", "{{" * 2000, "${HOME}", "\r\nSet-Cookie: a=b", "\x7f", "name:", "null", "\t",
)  # fmt: skip
NUMBERS = (
    "9" * 5000, "-1", "0", "1e3", "NaN",
    "Infinity", "2147483648", "9223372036854775808", "٣", "0x1",
    "1_000", "+5", " 5", "5.0",
)  # fmt: skip
INSTANTS = (
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-06-30T23:59:60Z", "2026-01-01",
    "2026-01-01T00:00:00", "2026-01-01T00:00:00+99:99", "-2026-01-01T00:00:00Z", "1", "now",
    "2026-01-01T00:00:00.123456789123Z",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *TEXTS[:16], *INSTANTS[:6], 0, -1, 2**63, 2**64 - 1, 1e308, -0.0, True, None, [], {}, [[]],
    {"a": {"b": []}}, ["x"] * 2000, {"": ""}, {"__proto__": 1},
)  # fmt: skip


def filled(route: Route) -> str:
    """A path of nothing that is there."""
    ids = dict.fromkeys(("job", "launch", "backfill", "operation", "id", "tenant"), unused_id()) | {
        "name": "nothing",
        "version": "1",
        "member": "s-1",
        "topic": "tickrail.default.due",
    }
    return route.template.format(**ids, partition="0", offset="0")


def callers(world: World, route: Route) -> Caller:
    """Who is let through to where the input is read."""
    return world.operator if route.operators else world.acme


def test_every_query_parameter_takes_odd_values(world: World) -> None:
    # Long ones stay below the bound of a line.
    odd = (*(t[:2000] for t in TEXTS), *NUMBERS, *INSTANTS)
    tried = 0
    for path, item in world.answers.document["paths"].items():
        for verb, operation in item.items():
            known = [p for p in operation.get("parameters", ()) if p["in"] == "query"]
            if not known:
                continue
            [route] = [
                r for r in routes(world.answers.document)
                if (r.verb, r.template) == (verb.upper(), path)
            ]  # fmt: skip
            for parameter in known:
                # A parameter of a kind has the same reader everywhere: a few values at each.
                for value in odd[tried % 3 :: 14]:
                    params = {parameter["name"]: value}
                    callers(world, route).call(
                        route.verb, filled(route), route.example, params=params
                    )
                    tried += 1
    assert tried > 150


def test_a_query_parameter_of_one_value_is_given_once(world: World) -> None:
    """Nothing says which of two values counts; a list takes several."""
    tried = set()
    for route in routes(world.answers.document):
        operation = world.answers.document["paths"][route.template][route.verb.lower()]
        for one in (p for p in operation.get("parameters", ()) if p["in"] == "query"):
            answer = callers(world, route).call(
                route.verb, filled(route), route.example, params={one["name"]: ["a", "b"]}
            )
            once = one["schema"].get("type") != "array"
            twice = [e["pointer"] for e in answer.json().get("errors", ())
                     if e["message"] == "is given twice"]  # fmt: skip
            assert twice == ([f"?{one['name']}"] if once else []), f"{route.template} {answer.text}"
            assert not once or answer.status_code == 422
            tried.add(once)
    assert tried == {True, False}


def mutants(document: Any) -> Iterator[Any]:
    """The document with one odd value in the place of each member, at any depth."""
    places = list(members(document, ()))
    for n, value in enumerate(VALUES * (1 + len(places) // len(VALUES))):
        for place in places[n % 3 :: 3]:
            changed = copy.deepcopy(document)
            inner = changed
            for step in place[:-1]:
                inner = inner[step]
            inner[place[-1]] = value
            yield changed
        if n > len(VALUES):
            return


def members(value: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The ways to the members of a document."""
    inside = (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list) else ()
    )  # fmt: skip
    for key, child in inside:
        yield (*above, key)
        yield from members(child, (*above, key))


def test_every_member_of_a_body_takes_odd_values(world: World) -> None:
    world.acme.create("subject", schedule={"every": "1h"})
    tried = 0
    for route in routes(world.answers.document):
        if not isinstance(route.example, dict):
            continue
        for changed in list(mutants(route.example))[:24]:
            # Answers of 5xx, and those that the document does not name, fail in the caller.
            callers(world, route).call(route.verb, filled(route), changed)
            tried += 1
    assert tried > 150


@pytest.mark.parametrize("name", ["X-Request-Id", "Tickrail-Tenant", "If-Match", "If-None-Match",
                                  "Idempotency-Key", "Content-Type", "Accept", "X-Forwarded-For",
                                  "Content-Encoding", "Cookie", "Origin"])  # fmt: skip
def test_every_header_takes_odd_bytes(world: World, name: str) -> None:
    body = json.dumps(webhook("a")).encode()
    head = (
        f"PUT /v1/jobs/name:a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {world.acme.token}\r\nContent-Length: {len(body)}\r\n"
    ).encode()
    for value in (b"", b"\xe9", b"\xff\xfe", b"\xf0\x9f\x98\x80", b'"' * 999, b"*, *", b"0" * 9999,
                  b'"999999999999999999"', b'W/"1"', b"a" * 9000, b"\x01", b"a\tb"):  # fmt: skip
        answer = raw_request(world, head + name.encode() + b": " + value + b"\r\n\r\n" + body)
        assert answer[9:10] in b"24", answer
        assert b"Traceback" not in answer


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({f"k{n}": n for n in range(60_000)}),
        "[" + "{}," * 340_000 + "{}]",
        "[" + "1," * 500_000 + "1]",
        json.dumps(webhook("a") | {"description": "x" * 1_000_000}),
        json.dumps(webhook("a") | {"tags": {f"t{n}": "v" for n in range(60_000)}}),
        json.dumps(webhook("a") | {"payload": ["\u0000"] * 100_000}),
        json.dumps(webhook("a", schedule={"cron": "1," * 400_000})),
        json.dumps(webhook("a", schedule={"cron": " " * 900_000})),
        json.dumps(webhook("a", schedule={"every": "1h" * 400_000})),
        json.dumps(webhook("a", schedule={"any_of": [{"every": "1h"}] * 50_000})),
        json.dumps(webhook("a" * 1_000_000)),
        json.dumps({"name": "a", "target": {"webhook": {"url": "http://" + "a" * 1_000_000}}}),
        '{"a": 1, "a": 2}',
        '{"payload": {"b": [{"c": 1, "c": 1}]}}',
        "[" * 100_000 + "]" * 100_000,
    ],
    ids=range(15),
)  # fmt: skip
def test_a_body_as_large_as_may_be_costs_little(acme: Caller, body: str) -> None:
    def refused() -> None:
        answer = acme.call("POST", "/v1/jobs", raw=body.encode())
        assert 400 <= answer.status_code < 500

    assert least_cpu_seconds(refused) < CPU


def test_fifty_megabytes_are_not_read(world: World) -> None:
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.acme.token}\r\n"
        f"Content-Length: {50 * 1024 * 1024}\r\nConnection: close\r\n\r\n"
    )

    def refused() -> None:
        answer = raw_request(world, head.encode() + b" " * 1000)
        assert answer.startswith(b"HTTP/1.1 413 ")

    assert least_cpu_seconds(refused) < CPU
