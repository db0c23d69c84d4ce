"""`tickrail jobs put`, `update` and `slots` against the real API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.api.test_calendar_cli import Said, tickrail
from tests.support.api import World

pytestmark = pytest.mark.integration
__all__ = ["tickrail"]

NIGHTLY = """name: nightly
schedule:
  calendar: {every: 1, unit: month, on: last, at: 04:00}
  time_zone: Europe/Berlin
starts_at: 2036-12-01T00:00:00Z
target: {webhook: {url: "https://example.org/hook"}}
"""


def test_a_job_is_put_and_changed_by_files(
    world: World, tickrail: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    (tmp_path / "patch.yaml").write_text("overlap: allow\n")
    put = ("jobs", "put", "-f", "nightly.yaml")
    said = (0, "Put nightly, version 1, next run 2036-12-31 03:00:00Z.", "")
    assert tickrail(*put) == said
    assert tickrail(*put) == said
    update = ("jobs", "update", "nightly", "-f", "patch.yaml", "--if-version", "1")
    changed = (0, "Updated nightly, version 2, next run 2036-12-31 03:00:00Z.", "")
    assert tickrail(*update) == changed
    assert world.acme.get("/v1/jobs/name:nightly")["overlap"] == "allow"
    code, _, err = tickrail(*update)
    assert (code, err.count("\n"), "version 2" in err) == (1, 1, True)
    code, _, err = tickrail(*put, "--if-version", "1")
    assert (code, err.count("\n")) == (1, 1)


def test_what_is_refused_is_one_line(tickrail: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    assert tickrail("jobs", "put", "-f", "nightly.yaml")[0] == 0
    refused = (
        ("jobs", "create", "--name", "x", "--cron", "60 * * * *", "--shell", "date"),
        ("jobs", "pause", "nightly", "--until", "2020-01-01T00:00:00Z"),
        ("slots", "nightly", "--from", "2026-02-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z"),
    )
    for words in refused:
        code, _, err = tickrail(*words)
        assert (code, err.count("\n")) == (1, 1), err
