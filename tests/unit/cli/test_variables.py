"""Variables in definitions, and YAML that is read back as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from tickrail_cli.definition_files import read_sources
from tickrail_cli.variables import VariableError, escaped, expand
from tickrail_cli.yaml_documents import dump_yaml, parse_yaml

VARIABLES = {"NAME": "x", "EMPTY": "", "MARK": "${NAME}", "N": "5"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a", "a"),
        ("${NAME}", "x"),
        ("a${NAME}b${NAME}", "axbx"),
        ("${EMPTY}", ""),
        ("${GONE:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${NAME:-d}", "x"),
        ("${GONE:-}", ""),
        ("${GONE:-a:-b $x}", "a:-b $x"),
        ("${MARK}", "${NAME}"),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$${NAME}"),
        ("$NAME $$ $(date) {{ payload.id }}", "$NAME $$ $(date) {{ payload.id }}"),
    ],
)
def test_variables_are_filled_in(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded


@pytest.mark.parametrize(
    "text", ["${GONE}", "${}", "${1A}", "${A B}", "${NAME", "${NAME-d}", "${:-d}"]
)
def test_what_is_no_variable_is_refused(text: str) -> None:
    with pytest.raises(VariableError, match=r"is not set|is no variable"):
        expand(text, VARIABLES)


@pytest.mark.parametrize("text", ["${NAME}", "$${NAME}", "$$${", "a ${ b", "$", "${GONE:-x}"])
def test_an_escaped_text_comes_back(text: str) -> None:
    assert expand(escaped(text), VARIABLES) == text


@pytest.mark.parametrize(
    "value",
    [
        *("on", "08", "1e5", "22:00", "~", "", "yes", "null", "<<", "=", "2026-01-01", "0x1f"),
        *("a: b", "# c", "-", "1_000", "\U0001f600", "tab\tx", "true", ".5", "+1", "[", "*x", "!a"),
        *("a\nb", "a\nb\n", " x\n  y\n", "trail \nx", "\n", "a\r\nb", "\x85x", "\u2028", "x\ufeff"),
        *("\x1b[0m", "\x07", 1, -0.5, 1e20, 1e-7, True, None),
    ],
)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    assert parse_yaml(dump_yaml({"a": [value], "b": {"c": value}})) == {
        "a": [value],
        "b": {"c": value},
    }


def sources(folder: Path, **files: str) -> list[tuple[str, Any]]:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    found = read_sources([str(folder)], VARIABLES)
    return [(s.where().removeprefix(f"{folder}/"), s.document) for s in found]


def test_a_stream_has_several_documents_and_each_its_line(tmp_path: Path) -> None:
    text = "---\n# one\na: ${N}\nb: '${N}'\n---\n---\n- {c: &c '$${N}', d: *c}\n- ${GONE:-true}\n"
    assert sources(tmp_path, a_yaml=text) == [
        ("a.yaml:3", {"a": 5, "b": "5"}),
        ("a.yaml:7", {"c": "${N}", "d": "${N}"}),
        ("a.yaml:7", True),
    ]


def test_what_is_merged_may_be_there_again(tmp_path: Path) -> None:
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {<<: {a: 4}, a: 5}\n"
    [(_, found)] = sources(tmp_path, a_yaml=text)
    assert (found["y"], found["z"]) == ({"a": 1, "b": 3}, {"a": 5})


def test_json_files_hold_one_document_or_an_array_of_them(tmp_path: Path) -> None:
    found = sources(tmp_path, a_json='[{"a": "${N}"}, {"b": ["$${"]}]', b_json='{"c": 1}')
    assert found == [
        ("a.json:1", {"a": "5"}), ("a.json:1", {"b": ["${"]}), ("b.json:1", {"c": 1}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.yaml", "a: 1\nb:\n  - c: ${GONE}\n", "a.yaml:3: the variable GONE is not set"),
        ("a.yaml", "# ${GONE}\na: |\n  x\n  ${A-B}\n", "a.yaml:2: '${A-B}' is no variable"),
        ("a.json", '{\n"a": 1,\n"b": "${GONE}"}', "a.json:3: the variable GONE is not set"),
        ("a.yaml", "a: [\n", "a.yaml:2: not valid YAML"),
        ("a.yml", "a: 1\n--- |\n ${GONE}", "a.yml:2: the variable GONE"),
        ("a.json", "{", "a.json: line 1, column 2: not valid JSON"),
        ("a.txt", "a: 1", "there is no document"),
        ("a.yaml", "a: 1\nb: {c: 1, c: 2}", "a.yaml:2: not valid YAML: the key 'c' is there twice"),
        ("a.json", '{"a": 1,\n"a": 2}', "a.json:2: not valid JSON: the key 'a' is there twice"),
        ("a.json", '{"a": {"a": 1, "a": 2}}', "a.json: not valid JSON: the key 'a' is there twice"),
        (".a.yaml", "a: 1", "there is no document"),
        ("a.yaml", "# nothing\n---\n", "there is no document"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, where: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(click.ClickException) as refused:
        read_sources([str(tmp_path)], VARIABLES)
    assert where in refused.value.message
    assert len(refused.value.message.splitlines()) == 1


def test_folders_are_read_in_order_and_not_through_hidden_ones(tmp_path: Path) -> None:
    for name in ("b/2.yaml", "b/1.json", "a.yml", ".git/x.yaml", "c/.x.yaml"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'"{name}"')
    found = [s.document for s in read_sources([str(tmp_path)], {})]
    assert found == ["a.yml", "b/1.json", "b/2.yaml"]
