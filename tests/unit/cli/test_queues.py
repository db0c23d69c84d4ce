"""`tickrail queues` and `tickrail tenants`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.stub_api import Answer, Asked, StubApi
from tests.unit.cli.conftest import Tickrail

MAIL = "/v1/queues/mail"
QUEUE: dict[str, Any] = {
    "name": "mail", "kinds": ["task", "webhook"], "max_running": 50,
    "rate": {"count": 600, "per": "1m"}, "paused": False, "paused_reason": "", "version": 2,
    "created_at": "2026-03-01T12:00:00Z",
    "tenant": {"max_running": 7, "rate": None, "paused": True, "paused_reason": "moving",
               "version": 1},
    "depth": {"due": 3, "later": 41, "queued": 12, "running": 10},
}  # fmt: skip
TENANT: dict[str, Any] = {
    "id": "0195a3f0-0000-7000-8000-000000000001", "name": "acme", "state": "active", "weight": 3,
    "max_running": 200, "egress": None, "kafka_topics": ["acme.*"], "version": 2,
    "created_at": "2026-03-01T12:00:00Z",
}  # fmt: skip


def test_queues_are_shown_with_their_limits(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/queues", Answer(body={"items": [QUEUE], "next_cursor": None}))
    api.on("GET", MAIL, Answer(body=QUEUE))
    table = tickrail("queues", "list").out
    for word in ("mail", "task, webhook", "600/1m", "50", "you"):
        assert word in table
    card = tickrail("queues", "get", "mail").out
    for word in ("moving", "41", "12"):
        assert word in card


@pytest.mark.parametrize(
    ("words", "method", "path", "document"),
    [
        (["create", "mail", "--kind", "task", "--max-running", "5"], "PUT", MAIL,
         {"kinds": ["task"], "max_running": 5}),
        (["set", "mail", "--rate", "10/1s", "--max-running", "none"], "PATCH", MAIL,
         {"max_running": None, "rate": {"count": 10, "per": "1s"}}),
        (["set", "mail", "--rate", "none"], "PATCH", MAIL, {"rate": None}),
        (["pause", "mail", "--reason", "moving"], "POST", f"{MAIL}/pause", {"reason": "moving"}),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_sent(
    tickrail: Tickrail, api: StubApi, words: list[str], method: str, path: str, document: Any
) -> None:
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(body=QUEUE)

    api.on(method, path, answer)
    assert "mail" in tickrail("queues", *words).out
    assert [call.body for call in asked] == [document]


@pytest.mark.parametrize(
    "words",
    [["--rate", "10"], ["--rate", "many/1m"], ["--max-running", "many"], []],
)
def test_a_limit_that_is_none_is_wrong_use(tickrail: Tickrail, words: list[str]) -> None:
    said = tickrail("queues", "set", "mail", *words)
    assert (said.code, bool(said.err)) == (2, True)


def test_what_is_still_paused_is_said(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", f"{MAIL}/resume", Answer(body=QUEUE))
    assert "paused for you" in tickrail("queues", "resume", "mail").out
    api.on("DELETE", MAIL, Answer(status=204))
    assert tickrail("queues", "delete", "--yes", "mail").out == "Deleted mail.\n"


def test_tenants(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    api.on("GET", "/v1/tenants", Answer(body={"items": [TENANT], "next_cursor": None}))
    api.on("GET", "/v1/tenants/acme", Answer(body=TENANT))
    assert "acme" in tickrail("tenants", "list").out
    assert "acme.*" in tickrail("tenants", "get", "acme").out
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(body=TENANT)

    api.on("PATCH", "/v1/tenants/acme", answer)
    lists = tmp_path / "lists.json"
    lists.write_text('{"allow": ["10.0.0.0/8"]}')
    said = tickrail(
        "tenants", "set", "acme", "--weight", "3", "--max-running", "none", "--kafka-topic", "a",
        "--egress", str(lists),
    ).out  # fmt: skip
    assert said == "Set acme, version 2.\n"
    assert asked[0].body == {
        "weight": 3, "max_running": None, "kafka_topics": ["a"],
        "egress": {"allow": ["10.0.0.0/8"], "deny": None, "only": None},
    }  # fmt: skip
    assert tickrail("tenants", "set", "acme").code == 2
