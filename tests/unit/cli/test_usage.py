"""`tickrail usage`, `tickrail quotas` and `tickrail tenants set --quota`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.stub_api import Answer, Asked, StubApi
from tests.unit.cli.conftest import Tickrail

UNUSED = {"used": None, "limit": "unlimited", "resets_at": None}
USAGE: dict[str, Any] = {
    "at": "2026-03-02T01:00:00Z",
    "jobs": {"used": 431, "limit": 500, "resets_at": None},
    "launches_per_minute": {"used": 12, "limit": 600, "resets_at": "2026-03-02T01:01:00Z"},
    "launches_per_day": UNUSED,
    "running": {"used": 7, "limit": "unlimited", "resets_at": None},
    "requests": UNUSED,
}
QUOTAS: dict[str, Any] = {"jobs": 500, "launches_per_day": "unlimited", "min_interval": "1m"}


def test_usage_is_a_table_of_what_is_used_of_what(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/usage", Answer(body=USAGE))
    lines = [line.split() for line in tickrail("usage", "--utc").out.splitlines()]
    assert lines[0] == ["what", "used", "limit", "share", "again", "at"]
    assert ["jobs", "431", "500", "86", "%", "-"] in lines
    minute = ["launches", "this", "minute", "12", "600", "2", "%", "2026-03-02", "01:01:00Z"]
    assert minute in lines
    today = ["launches", "today", "(UTC)", "not", "counted", "unlimited", "-", "-"]
    assert today in lines
    assert json.loads(tickrail("usage", "--output", "json").out) == USAGE


def test_whose_they_are_is_said_behind_the_command_too(tickrail: Tickrail, api: StubApi) -> None:
    asked: list[str | None] = []

    def answer(call: Asked) -> Answer:
        asked.append(call.headers.get("tickrail-tenant"))
        return Answer(body=USAGE)

    api.on("GET", "/v1/usage", answer)
    assert tickrail("usage", "--tenant", "acme").code == 0
    assert tickrail("--tenant", "acme", "usage").code == 0
    assert asked == ["acme", "acme"]


def test_quotas_are_shown(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/quotas", Answer(body=QUOTAS))
    lines = [line.split() for line in tickrail("quotas").out.splitlines()]
    assert ["jobs", "500"] in lines
    assert ["launches_per_day", "unlimited"] in lines
    assert json.loads(tickrail("quotas", "--output", "json").out) == QUOTAS


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["quotas", "set", "jobs=5", "min_interval=", "launches_per_day=unlimited"], "/v1/quotas"),
        (
            ["tenants", "set", "acme", "--quota", "jobs=5", "--quota", "min_interval=", "--quota",
             "launches_per_day=unlimited"],
            "/v1/tenants/acme",
        ),
    ],
)  # fmt: skip
def test_what_an_operator_sets_is_sent(
    tickrail: Tickrail, api: StubApi, words: list[str], path: str
) -> None:
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(body={"name": "acme", "version": 2} if "tenants" in path else QUOTAS)

    api.on("PATCH", path, answer)
    assert tickrail(*words).code == 0
    patch = {"jobs": 5, "min_interval": None, "launches_per_day": "unlimited"}
    assert [c.body for c in asked] == [{"quotas": patch} if "tenants" in path else patch]


@pytest.mark.parametrize("word", ["jobs", "jbos=3", "jobs=many"])
def test_what_is_no_quota_is_wrong_use(tickrail: Tickrail, word: str) -> None:
    for words in (["quotas", "set", word], ["tenants", "set", "acme", "--quota", word]):
        said = tickrail(*words)
        assert (said.code, bool(said.err)) == (2, True)


def test_who_is_told_is_shown_and_set(tickrail: Tickrail, api: StubApi) -> None:
    asked: list[Any] = []

    def put(call: Asked) -> Answer:
        asked.append(call.body)
        return Answer(body=call.body)

    api.on("GET", "/v1/quotas/notify", Answer(body={"notify": ["webhook:ops"]}))
    api.on("PUT", "/v1/quotas/notify", put)
    assert "webhook:ops" in tickrail("quotas", "notify").out
    assert "kafka:alerts" in tickrail("quotas", "notify", "webhook:a", "kafka:alerts").out
    assert "nobody" in tickrail("quotas", "notify", "--none").out
    assert asked == [{"notify": ["webhook:a", "kafka:alerts"]}, {"notify": []}]
    assert tickrail("quotas", "notify", "webhook:a", "--none").code == 2
