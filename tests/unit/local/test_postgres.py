from __future__ import annotations

from pathlib import Path

import pytest

from tickrail.core.clock import SystemClock
from tickrail.local import postgres
from tickrail.local.errors import LocalServersError
from tickrail.local.postgres import Postgres
from tickrail.local.server import Place


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    """A cluster whose process has the pid 77 and whose port answers."""
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(Postgres, "pid", 77)
    monkeypatch.setattr(postgres, "answers", lambda _: True)
    place = Place(folder=tmp_path, log=tmp_path / "log", clock=SystemClock())
    return Postgres(place, 5432, tmp_path / "password")


@pytest.mark.parametrize(
    ("written", "ready"),
    [
        (None, False),
        ("", False),
        ("77\n", False),
        ("77\n/data\n1\n5432\n\n127.0.0.1\n\nstarting\n", False),
        ("77\n/data\n1\n5432\n\n127.0.0.1\n\nready   \n", True),
        ("76\n/data\n1\n5432\n\n127.0.0.1\n\nready   \n", False),
    ],
    ids=["no file", "empty", "cut short", "starting", "ready", "of a killed predecessor"],
)
def test_ready_is_what_its_own_pid_file_says(
    cluster: Postgres, written: str | None, ready: bool
) -> None:
    if written is not None:
        (cluster.place.folder / "data" / "postmaster.pid").write_text(written)
    assert cluster.is_ready() is ready


def test_a_cluster_of_another_major_version_is_refused(cluster: Postgres) -> None:
    (cluster.place.folder / "data" / "PG_VERSION").write_text("15\n")
    with pytest.raises(LocalServersError, match=r"made by PostgreSQL 15, installed is 18\."):
        cluster.prepare()


def test_a_password_is_quoted_in_the_dsn(cluster: Postgres, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a/b@c\n")
    assert cluster.dsn == "postgresql://postgres:a%2Fb%40c@127.0.0.1:5432/postgres"
