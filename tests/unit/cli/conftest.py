from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.stub_api import StubApi

from tickrail_cli import main


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


@dataclass
class Said:
    """What one command line answered."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Tickrail = Callable[..., Said]


@pytest.fixture
def tickrail(
    api: StubApi,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Tickrail:
    """Runs a command line against the stub, in an empty folder, with no other settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("TICKRAIL_CONFIG", "TICKRAIL_API_URL", "TICKRAIL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TICKRAIL_API_URL", api.url)
    monkeypatch.setenv("TICKRAIL_API_KEY", "trk_a_b")

    def run(*words: str) -> Said:
        code = main.run(list(words))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Said(code, captured.out, captured.err)

    return run
