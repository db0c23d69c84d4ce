"""The list of outcomes that a retry policy may name is the list of those that there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tree import ROOT

from tickrail.core.outcomes import KNOWN, NEVER
from tickrail.core.ports_bus import BusError

LIBRARY = ROOT / "libs/tickrail"
ROOMS = ("core", "engine", "executors", "sdk")
MAKERS = {"CertainError", "RefusedError", "_RefusedError", "_refused", "_lost", "Outcome"}
"""What is called with an outcome: as `outcome`, or as its first argument, `_lost` its second."""


def words(node: ast.expr | None, constants: dict[str, str]) -> Iterator[str]:
    """The texts that an argument may be."""
    match node:
        case ast.Constant(value=str(text)) if text.isidentifier():
            yield text
        case ast.Name(id=name) if name in constants:
            yield constants[name]
        case ast.IfExp(body=one, orelse=other):
            yield from words(one, constants)
            yield from words(other, constants)


def made_in(source: str, constants: dict[str, str]) -> Iterator[str]:
    """The outcomes that a module makes."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if name not in MAKERS:
            continue
        place = 1 if name == "_lost" else 0
        if name != "Outcome" and len(node.args) > place:
            yield from words(node.args[place], constants)
        for keyword in node.keywords:
            if keyword.arg == "outcome":
                yield from words(keyword.value, constants)


def sources() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((LIBRARY / room).rglob("*.py"))


def made() -> set[str]:
    """Every outcome that the code makes, as far as it is written there as it is."""
    texts = [path.read_text() for path in sources()]
    constants = {
        str(ast.unparse(node.targets[0])): node.value.value
        for text in texts
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    found = {word for text in texts for word in made_in(text, constants)}
    return found | {kind.code for kind in BusError.__subclasses__()}


def test_every_outcome_is_in_the_list() -> None:
    found = made()
    assert len(found) > 30
    assert found - {known.name for known in KNOWN} - NEVER == set()


def test_the_list_has_no_other() -> None:
    # The reaper's is written by the verdict on a lost claim, not by an outcome.
    assert {known.name for known in KNOWN} - made() == {"worker_lost"}
    assert len({known.name for known in KNOWN}) == len(KNOWN)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('raise CertainError("new_one", "text")', "new_one"),
        ('Outcome(ok=False, outcome="new_one")', "new_one"),
        ('x = _lost(call, "new_one", "text")', "new_one"),
        ('Outcome(ok=False, outcome="new_one" if x else y.code)', "new_one"),
        ("Outcome(ok=False, outcome=_NEW)", "new_one"),
    ],
)
def test_a_new_outcome_is_seen(line: str, word: str) -> None:
    assert list(made_in(line, {"_NEW": "new_one"})) == [word]
