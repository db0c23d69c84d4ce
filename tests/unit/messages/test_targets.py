"""Target documents: what is read, what is refused and where."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.core.target_command import Command
from tickrail.core.target_webhook import Webhook
from tickrail.core.targets import (
    Noop,
    Target,
    parse_target,
    target_document,
    target_kind,
)

URL = "https://example.org/hook"


@pytest.mark.parametrize(
    ("doc", "target"),
    [
        ({"webhook": {"url": URL}}, Webhook(URL)),
        (
            {
                "webhook": {
                    "url": URL,
                    "method": "PUT",
                    "headers": {"X-Team": "billing"},
                    "success": [200, "3xx"],
                }
            },
            Webhook(URL, "PUT", (("X-Team", "billing"),), ("200", "3xx")),
        ),
        ({"webhook": {"url": URL, "success": 204}}, Webhook(URL, success=("204",))),
        ({"command": {"argv": ["echo", "", "ä"]}}, Command(("echo", "", "ä"))),
        (
            {
                "command": {
                    "shell": "true | cat",
                    "env": {"A_1": "x=y"},
                    "cwd": "/tmp",
                    "user": "www-data",
                    "stdin": "a\nb",
                }
            },
            Command((), "true | cat", (("A_1", "x=y"),), "/tmp", "www-data", "a\nb"),
        ),
        ({"noop": {}}, Noop()),
    ],
)
def test_documents_are_read_and_written_back(doc: dict[str, object], target: Target) -> None:
    assert parse_target(doc) == target
    assert parse_target(target_document(target)) == target
    assert target_kind(target) == next(iter(doc))


@pytest.mark.parametrize(
    ("doc", "pointer", "hint"),
    [
        (None, "/target", "one of webhook, "),
        ([], "/target", "one of"),
        ({}, "/target", "one of"),
        ({"webhook": {"url": URL}, "noop": {}}, "/target", "one of"),
        ({"webhok": {"url": URL}}, "/target/webhok", "did you mean webhook?"),
        ({"a/b~": {}}, "/target/a~1b~0", "one of"),
        ({"kafkaa": {"topic": "x"}}, "/target/kafkaa", "did you mean kafka?"),
        ({"webhook": URL}, "/target/webhook", "an object"),
        ({"webhook": {}}, "/target/webhook/url", "an http or https URL"),
        ({"webhook": {"url": 7}}, "/target/webhook/url", "an http or https URL"),
        ({"webhook": {"url": "ftp://x/"}}, "/target/webhook/url", "http://"),
        ({"webhook": {"url": "http://a@b/"}}, "/target/webhook/url", "no user"),
        ({"webhook": {"url": "http://b./"}}, "/target/webhook/url", "no dot"),
        ({"webhook": {"url": "http://" + "x" * 3000}}, "/target/webhook/url", "2048"),
        ({"webhook": {"url": URL, "methd": "GET"}}, "/target/webhook/methd", "mean method?"),
        ({"webhook": {"url": URL, "method": "get"}}, "/target/webhook/method", "GET"),
        ({"webhook": {"url": URL, "headers": []}}, "/target/webhook/headers", "an object"),
        ({"webhook": {"url": URL, "headers": {"a b": "c"}}}, "/target/webhook/headers/a b", ""),
        ({"webhook": {"url": URL, "headers": {"A": 1}}}, "/target/webhook/headers/A", "a string"),
        ({"webhook": {"url": URL, "headers": {"A": "b\r\nC: d"}}}, "/target/webhook/headers/A", ""),
        ({"webhook": {"url": URL, "headers": {"A": "☃"}}}, "/target/webhook/headers/A", "Latin"),
        ({"webhook": {"url": URL, "headers": {"Host": "x"}}}, "/target/webhook/headers/Host", ""),
        (
            {"webhook": {"url": URL, "headers": {"idempotency-KEY": "x"}}},
            "/target/webhook/headers/idempotency-KEY",
            "another name",
        ),
        (
            {"webhook": {"url": URL, "headers": {"Tickrail-Job": "x"}}},
            "/target/webhook/headers/Tickrail-Job",
            "another name",
        ),
        (
            {"webhook": {"url": URL, "headers": {"X-a": "1", "x-A": "2"}}},
            "/target/webhook/headers/x-A",
            "one spelling",
        ),
        ({"webhook": {"url": URL, "success": "6xx"}}, "/target/webhook/success", "2xx"),
        ({"webhook": {"url": URL, "success": []}}, "/target/webhook/success", "2xx"),
        ({"webhook": {"url": URL, "success": [True]}}, "/target/webhook/success", "2xx"),
        ({"webhook": {"url": URL, "success": 99}}, "/target/webhook/success", "2xx"),
        ({"command": {}}, "/target/command", "argv"),
        ({"command": {"argv": ["a"], "shell": "b"}}, "/target/command", "argv"),
        ({"command": {"argv": []}}, "/target/command/argv", "1 to 1000 strings"),
        ({"command": {"argv": "ls"}}, "/target/command/argv", "strings"),
        ({"command": {"argv": ["a", 1]}}, "/target/command/argv/1", "a string"),
        ({"command": {"argv": [""]}}, "/target/command/argv/0", "a program"),
        ({"command": {"argv": ["a\x00b"]}}, "/target/command/argv/0", "without NUL"),
        ({"command": {"argv": ["\ud800"]}}, "/target/command/argv/0", "valid Unicode"),
        ({"command": {"argv": ["x" * 200_000]}}, "/target/command/argv/0", "at most 131072"),
        ({"command": {"shell": "  "}}, "/target/command/shell", "a command line"),
        ({"command": {"shell": "a", "env": {"A-B": "c"}}}, "/target/command/env/A-B", "letters"),
        ({"command": {"shell": "a", "env": {"A": None}}}, "/target/command/env/A", "a string"),
        (
            {"command": {"shell": "a", "env": {"TICKRAIL_X": ""}}},
            "/target/command/env/TICKRAIL_X",
            "",
        ),
        ({"command": {"shell": "a", "cwd": "tmp"}}, "/target/command/cwd", "an absolute path"),
        ({"command": {"shell": "a", "user": "a b"}}, "/target/command/user", "a name"),
        ({"noop": {"x": 1}}, "/target/noop/x", ""),
    ],
)
def test_what_is_wrong_is_named(doc: Any, pointer: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_target(doc)
    found = {p.pointer: p for p in refused.value.problems}
    assert pointer in found
    assert hint in found[pointer].expected


def test_every_problem_is_told_at_once_under_the_given_pointer() -> None:
    doc = {"webhook": {"url": "nope", "method": "X", "success": "all", "more": 1}}
    with pytest.raises(InvalidInputError) as refused:
        parse_target(doc, "/items/3/target")
    assert {p.pointer for p in refused.value.problems} == {
        f"/items/3/target/webhook/{name}" for name in ("url", "method", "success", "more")
    }
