"""Where commands that go straight to the servers find those of `tickrail up`."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from tickrail.local import stack
from tickrail.local.stack import StackAddresses
from tickrail.runtime.settings import Settings, load_settings
from tickrail.store import provision
from tickrail_cli import home

AT = StackAddresses(
    postgres_dsn="host=127.0.0.1 port=5555 user=postgres dbname=postgres",
    postgres_host="127.0.0.1",
    postgres_port=5555,
    postgres_user="postgres",
    postgres_password="made-up",
    etcd_endpoints="127.0.0.1:4444",
    kafka_bootstrap="127.0.0.1:3333",
)
OWNER = "host=127.0.0.1 port=5555 user=tickrail_owner dbname=tickrail"


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The data folder of an `up` that runs."""
    folder = tmp_path / "kept"
    folder.mkdir()

    def running(asked: Path) -> StackAddresses | None:
        return AT if asked == folder else None

    def provisioned(dsn: str, database: str, passwords: Any) -> provision.Urls:
        assert (dsn, database, set(passwords)) == (AT.postgres_dsn, "tickrail", {*provision.ROLES})
        return provision.Urls(OWNER, "", "")

    monkeypatch.setattr(stack, "running", running)
    monkeypatch.setattr(provision, "provision", provisioned)
    return folder


def settings(folder: Path, **given: str) -> Settings:
    return load_settings({"data_dir": str(folder), **given}, environ={})


def test_the_servers_of_up_are_used_where_none_is_set(up: Path) -> None:
    found = home.servers_of(settings(up))
    assert (found.database_url, found.etcd_endpoints) == (OWNER, ("127.0.0.1:4444",))
    assert home.owner_url(settings(up)) == OWNER
    assert stat.S_IMODE((up / home.KEPT_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("given", [{"database_url": "dbname=x"}, {"etcd_endpoints": "h:1"}])
def test_what_is_set_is_not_mixed_with_the_servers_of_up(up: Path, given: dict[str, str]) -> None:
    made = settings(up, **given)
    assert home.servers_of(made) is made


def test_where_no_up_runs_the_settings_stay(up: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        made = settings(folder)
        assert home.servers_of(made) is made
        assert home.owner_url(made) == made.database_url
    assert home.servers_of(settings(up)).database_url == OWNER
