"""Which etcd the tests run, and that it is built once and never in silence replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.etcd_program import Program
from tests.support.go_program import GoProgram, NotBuiltError

WANTED = GoProgram("etcd", "example.org/etcd", "9.9.9", (("example.org/etcd.Major", "9"),))

FAKE_GO = """#!/bin/sh
echo "$@" >> {calls}
if [ "$1" = "{fails}" ]; then echo "go: first" >&2; echo "go: why it failed" >&2; exit 1; fi
if [ "$1" = build ]; then echo binary > "$5"; fi
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a Go was asked to do, one line a call; on the PATH is only what a test puts there."""
    monkeypatch.setenv("TICKRAIL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    return tmp_path / "calls"


def go(calls: Path, *, fails: str = "nothing") -> None:
    program = calls.parent / "bin" / "go"
    program.write_text(FAKE_GO.format(calls=calls, fails=fails))
    program.chmod(0o755)


def test_it_is_built_once(calls: Path) -> None:
    go(calls)
    first = WANTED.build()
    assert first.read_text() == "binary\n"
    commands = calls.read_text().splitlines()
    assert [line.split()[0] for line in commands] == ["mod", "get", "build"]
    assert commands[1].endswith("@v9.9.9")
    assert "-X example.org/etcd.Major=9" in commands[2]
    assert WANTED.build() == first
    assert calls.read_text().splitlines() == commands
    assert sorted(p.name for p in first.parent.iterdir()) == ["etcd", "lock"]


def test_without_go_it_says_so(calls: Path) -> None:
    assert not calls.exists()
    with pytest.raises(NotBuiltError, match="no `go` on the PATH"):
        WANTED.build()


def test_a_build_that_fails_says_why_and_leaves_nothing(calls: Path) -> None:
    go(calls, fails="get")
    with pytest.raises(NotBuiltError, match="go: why it failed"):
        WANTED.build()
    assert not (calls.parent / "cache" / "etcd-9.9.9" / "etcd").exists()


@pytest.mark.parametrize(
    ("version", "good"), [("3.5.1", False), ("3.5.8", False), ("3.5.9", True), ("3.6.16", True)]
)
def test_which_may_be_killed(version: str, good: bool) -> None:
    assert Program(Path("etcd"), version, "somewhere").may_be_killed is good
