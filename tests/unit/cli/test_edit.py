"""`tickrail jobs edit`: the document goes through an editor and back."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail
from tests.unit.cli.test_definitions import ID, WEBHOOK, answer

Editor = Callable[..., None]
BEFORE = answer({"name": "nightly", "overlap": "allow", "target": WEBHOOK}, version=3)
AFTER = BEFORE | {"overlap": "skip", "version": 4}


@pytest.fixture
def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Editor:
    """An editor that runs these commands of sed, one after the other at each call."""

    def makes(*scripts: str) -> None:
        program = tmp_path / "editor"
        count = tmp_path / "count"
        cases = "\n".join(f"{i}) sed -i '{s}' \"$1\";;" for i, s in enumerate(scripts))
        program.write_text(
            f"#!/bin/sh\nn=$(cat {count} 2>/dev/null || echo 0)\necho $((n + 1)) > {count}\n"
            f'case $n in\n{cases}\nesac\ntouch -d "2036-01-01 00:00:0$n" "$1"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("VISUAL", str(program))

    return makes


def test_what_was_edited_is_put(tickrail: Tickrail, api: StubApi, editor: Editor) -> None:
    editor("s/overlap: allow/overlap: skip/")
    api.on("GET", "/v1/jobs/name:nightly", Answer(body=BEFORE))
    api.on("PUT", f"/v1/jobs/{ID}", Answer(body=AFTER))
    assert tickrail("jobs", "edit", "nightly").out == "Changed nightly, version 4.\n"
    sent = api.asked[-1]
    assert sent.body == {"name": "nightly", "overlap": "skip", "target": WEBHOOK}
    assert sent.headers["if-match"] == '"3"'


def test_an_empty_file_changes_nothing(tickrail: Tickrail, api: StubApi, editor: Editor) -> None:
    editor("d")
    api.on("GET", "/v1/jobs/name:nightly", Answer(body=BEFORE))
    assert tickrail("jobs", "edit", "nightly").out == "Nothing was changed.\n"
    assert len(api.asked) == 1


def test_what_is_refused_can_be_edited_again(
    tickrail: Tickrail, api: StubApi, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor("s/overlap: allow/overlap: [/", "s/overlap: \\[/overlap: skp/", "s/skp/skip/")
    api.on("GET", "/v1/jobs/name:nightly", Answer(body=BEFORE))
    refused = problem(422, "invalid_input", "The job is not valid.")
    api.on("PUT", f"/v1/jobs/{ID}", refused, Answer(body=AFTER))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\ny\n"))
    said = tickrail("jobs", "edit", "nightly")
    assert (said.code, said.out) == (0, "Changed nightly, version 4.\n")
    assert "not valid YAML" in said.err
    assert "The job is not valid." in said.err
    assert [asked.body["overlap"] for asked in api.asked[1:]] == ["skp", "skip"]
    api.on("PUT", f"/v1/jobs/{ID}", refused)
    editor("s/allow/skp/")
    (Path.cwd() / "count").unlink()
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert tickrail("jobs", "edit", "nightly").code == 1
