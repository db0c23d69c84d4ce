"""Every regular expression that may see what a user wrote takes time in proportion to it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest
from tests.support.cpu import own_cpu_seconds
from tests.support.tree import ROOT

FOLDERS = ("libs/tickrail/core", "libs/tickrail/formats", "services/tickrail_api")
LENGTH = 30_000
WITHIN = 1.0
"""CPU seconds; a pattern that backtracks over and over takes minutes for such a text."""
SEEDS = (
    "a", "0", " ", "-", ".", "_", "a.", "0-", "a ", " a", ",", "0,", "+", "/", "*/", "{", "{{ a",
    '"', "'", "\\", '"1", ', "a=", "%", "ä", "\n", "\t", "x\r\n ", "T0", "0:", "trk_a", "bearer ",
    "application/a+", "mon", "L", "#", "@", "1h", "P1", "=a;", "::", "a-b.", "http_", ": ",
)  # fmt: skip


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """The compiled patterns of the modules in these folders, by name."""
    for folder in FOLDERS:
        base = ROOT / folder
        package = ".".join(base.relative_to(ROOT).parts[1:])
        for file in sorted(base.rglob("*.py")):
            parts = file.relative_to(base).with_suffix("").parts
            module = importlib.import_module(
                ".".join([package, *(p for p in parts if p != "__init__")])
            )
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern) and "re.compile" in file.read_text():
                    yield f"{module.__name__}.{name}", value


def texts() -> Iterator[str]:
    """Long texts of one piece, each with an end that fits nothing."""
    for seed in SEEDS:
        for before in ("", "1", "a", "trk_", "application/", "http_", "0 "):
            yield before + seed * (LENGTH // len(seed)) + "\x00"


def seconds(pattern: re.Pattern[str] | re.Pattern[bytes]) -> float:
    """What the worst of these texts costs."""
    slowest = 0.0
    for text in texts():
        subject = text.encode() if isinstance(pattern.pattern, bytes) else text
        began = own_cpu_seconds()
        pattern.fullmatch(subject)  # type: ignore[arg-type, call-overload]
        slowest = max(slowest, own_cpu_seconds() - began)
        if slowest > WITHIN:
            break
    return slowest


FOUND = dict(patterns())


def test_there_are_patterns_to_look_at() -> None:
    assert len(FOUND) >= 40


@pytest.mark.parametrize("name", FOUND)
def test_a_pattern_is_linear(name: str) -> None:
    assert seconds(FOUND[name]) < WITHIN


@pytest.mark.parametrize("bad", [r"(a+)+b", r"(a|a)*b", r"^(\s*a*\s*)*$"])
def test_one_that_is_not_is_found(bad: str) -> None:
    costs = []
    for length in (14, 20):
        began = own_cpu_seconds()
        re.compile(bad).fullmatch("a" * length + "\x00")
        costs.append(own_cpu_seconds() - began)
    assert costs[1] > 8 * costs[0]
