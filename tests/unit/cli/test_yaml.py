"""YAML documents on the command line mean what their JSON would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from tickrail_cli.files import read_document

READ = (
    ("a day stays a text", "dates: [2026-12-24]", {"dates": ["2026-12-24"]}),
    ("an instant stays a text", "at: 2026-12-01T00:00:00Z", {"at": "2026-12-01T00:00:00Z"}),
    ("a local time stays a text", "at: 2026-12-01 08:00:00", {"at": "2026-12-01 08:00:00"}),
    ("a time of day is no sexagesimal number", "from: 22:00", {"from": "22:00"}),
    ("nor with seconds", "from: 22:00:30", {"from": "22:00:30"}),
    (
        "`on` is a name",
        "calendar: {on: last, unit: month}",
        {"calendar": {"on": "last", "unit": "month"}},
    ),
    ("yes and no are texts", "[yes, No, off, y]", ["yes", "No", "off", "y"]),
    ("truth", "[true, False, TRUE]", [True, False, True]),
    ("nothing", "[null, ~, '']", [None, None, ""]),
    ("an empty value is null", "payload:", {"payload": None}),
    ("numbers", "[7, -3, +4, 010, 1.5, 1e3, .5]", [7, -3, 4, 10, 1.5, 1000.0, 0.5]),
    (
        "other bases are texts",
        "[0x10, 0o7, 1_000, .inf, .nan]",
        ["0x10", "0o7", "1_000", ".inf", ".nan"],
    ),
    (
        "keys are texts",
        "{1: a, true: b, 2026-01-01: c, null: d}",
        {"1": "a", "true": "b", "2026-01-01": "c", "null": "d"},
    ),
    ("a date said to be one", "!!timestamp 2026-01-01", "2026-01-01"),
    (
        "parts that are shared",
        "a: &x {b: 1}\nc:\n  <<: *x\n  d: 2",
        {"a": {"b": 1}, "c": {"b": 1, "d": 2}},
    ),
)
REFUSED = (
    ("what contains itself", "&a [*a]", "recursive"),
    ("a key that is a list", "[1, 2]: x", "a key is no text"),
    ("a number beyond all", "a: 1e999", "1e999 is no number of JSON"),
    ("a number that is none", "a: !!int x", "x is no number of JSON"),
    ("a type that JSON has not", "!!set {a, b}", "could not determine a constructor"),
    ("nested too deep", "[" * 5000 + "]" * 5000, "nested too deep"),
)


def _read(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "d.yaml"
    file.write_text(text)
    return read_document(str(file))


@pytest.mark.parametrize(("text", "value"), [r[1:] for r in READ], ids=[r[0] for r in READ])
def test_a_document_reads_as_its_json(tmp_path: Path, text: str, value: object) -> None:
    found = _read(tmp_path, text)
    assert json.dumps(found) == json.dumps(value)


@pytest.mark.parametrize(("text", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_json_cannot_say_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(click.ClickException) as refused:
        _read(tmp_path, text)
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "a: 1\nb: 2\na: 3"), ("a.json", '{"a": 1, "a": 2}')]
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(click.ClickException, match="the key 'a' is there twice"):
        read_document(str(file))


def test_what_is_merged_may_be_there_again(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("x: &x {a: 1}\nw: {<<: &y {<<: *x, a: 2}, a: 3}\nz: *y\n")
    assert read_document(str(file)) == {"x": {"a": 1}, "w": {"a": 3}, "z": {"a": 2}}
