"""What is shown of texts that hold values of variables."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.core.errors import Problem
from tickrail_cli.definition_files import Source
from tickrail_cli.definitions import Change, Item, Refusal
from tickrail_cli.hiding import shown, told
from tickrail_cli.variables import hidden_in, used

VALUES = {"TOKEN": "hunter2-hunter2", "N": "7", "EMPTY": ""}


def source(written: Any) -> Source:
    return Source("f", None, hidden=hidden_in(written, VALUES))


def change(written: Any, before: Any, after: Any) -> tuple[Any, Any]:
    found = shown(
        Change("job", "a", "changed", before, after, Item(source(written), "job", "a", {}))
    )
    return found.before, found.after


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("${TOKEN}-${N}", {"TOKEN", "N"}),
        ("${TOKEN:-x}", {"TOKEN"}),
        ("$${TOKEN}", set()),
        ("${GONE:-x}${EMPTY:-y}", set()),
        ("TOKEN", set()),
    ],
)
def test_a_text_gets_values_of_these_variables(text: str, names: set[str]) -> None:
    assert set(used(text, VALUES)) == names


@pytest.mark.parametrize(
    ("written", "before", "after", "seen"),
    [
        pytest.param(
            {"a": "x-${TOKEN}", "b": "y"},
            {"a": "x-hunter2-hunter2", "b": "z"},
            {"a": "x-hunter2-hunter2", "b": "y"},
            ({"a": "x-${TOKEN}", "b": "z"}, {"a": "x-${TOKEN}", "b": "y"}),
            id="the same value",
        ),
        pytest.param(
            {"a": "${TOKEN}"}, {"a": "old"}, {"a": "hunter2-hunter2"},
            ({"a": "***"}, {"a": "${TOKEN}"}),
            id="another value",
        ),
        pytest.param(
            {"a": "${N}"}, {"a": 6}, {"a": 7}, ({"a": "***"}, {"a": "${N}"}), id="a number"
        ),
        pytest.param(
            {"h": {"New": "${TOKEN}"}}, {"h": {"Old": "old", "n": 1}},
            {"h": {"New": "hunter2-hunter2", "n": 2}},
            ({"h": {"Old": "***", "n": 1}}, {"h": {"New": "${TOKEN}", "n": 2}}),
            id="under another name",
        ),
        pytest.param(
            {"argv": ["a", "-t", "${TOKEN}"]}, {"argv": ["a", "old", "-t"]},
            {"argv": ["a", "-t", "hunter2-hunter2"]},
            ({"argv": ["a", "***", "***"]}, {"argv": ["a", "-t", "${TOKEN}"]}),
            id="at another place of a list",
        ),
        pytest.param(
            {"a": {"b": "${TOKEN}"}}, {"c": "hunter2-hunter2!"}, {"c": "hunter2-hunter2"},
            ({"c": "${TOKEN}!"}, {"c": "${TOKEN}"}),
            id="somewhere else",
        ),
        pytest.param({"a": "b"}, {"a": "7"}, None, ({"a": "7"}, None), id="no variable"),
        pytest.param(
            {"name": "job-${N}"}, None, {"name": "job-7"}, (None, {"name": "job-7"}), id="a name"
        ),
    ],
)  # fmt: skip
def test_values_are_hidden_and_differences_stay(
    written: Any, before: Any, after: Any, seen: Any
) -> None:
    assert change(written, before, after) == seen


def test_of_what_is_deleted_credentials_are_masked() -> None:
    found = shown(Change("job", "a", "deleted", {"Authorization": "Bearer x", "url": "y"}))
    assert found.before == {"Authorization": "***", "url": "y"}


def test_a_refusal_quotes_no_value() -> None:
    refusal = Refusal(source({"n": "${N}"}), "a", Problem("/n", "is '7', no duration", "30s"))
    assert told(refusal).problem.message == "is '${N}', no duration"
    refusal = Refusal(source({"t": "${TOKEN}"}), "a", Problem("/u", "hunter2-hunter2 is long"))
    assert told(refusal).problem.message == "${TOKEN} is long"
