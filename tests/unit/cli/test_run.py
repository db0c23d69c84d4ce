from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog
from tests.unit.cli.conftest import Tickrail

from tickrail.runtime.settings import Settings
from tickrail_cli import run
from tickrail_cli.config import COMMON, FLAGS, names_of


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Settings]]:
    """A service that takes its settings and ends at once."""
    given: list[Settings] = []
    module = ModuleType("stub_service")

    def entry(settings: Settings) -> int:
        given.append(settings)
        structlog.get_logger().info("here")
        return 7

    module.run = entry  # type: ignore[attr-defined]  # made for the test
    monkeypatch.setitem(sys.modules, "stub_service", module)
    for name in run.ENTRIES:
        monkeypatch.setitem(run.ENTRIES, name, "stub_service:run")
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    yield given
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)
    logging.captureWarnings(capture=False)


@pytest.mark.parametrize("name", ["api", "scheduler", "worker", "watchdog"])
def test_a_service_gets_its_settings_and_gives_the_exit_code(
    tickrail: Tickrail, service: list[Settings], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKRAIL_STATUS_PORT", "1")
    url = "postgresql://x@h/d"
    said = tickrail(name, "--database-url", url, "--status-port", "0", "--no-prepare-statements")
    assert said.code == 7
    [settings] = service
    assert (settings.database_url, settings.status_port) == (url, 0)
    assert not settings.prepare_statements
    assert json.loads(said.err)["process"] == name


def test_the_process_is_called_as_it_is_named(tickrail: Tickrail, service: list[Settings]) -> None:
    said = tickrail("worker", "--name", "w-3", "--log-format", "json")
    assert json.loads(said.err)["process"] == "w-3"
    assert service[0].name == "w-3"


def test_no_secret_is_a_flag_and_every_setting_of_a_process_is() -> None:
    flags = {name for prefixes in FLAGS.values() for name in names_of((*prefixes, *COMMON))}
    secrets = {n for n, info in Settings.model_fields.items() if not info.repr}
    of_the_user = {"api_url", "api_timeout", "data_dir", "cache_dir"}
    assert flags == set(Settings.model_fields) - secrets - of_the_user


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The store's functions, told apart by what they are called with."""
    from tickrail_cli import migrate  # noqa: PLC0415 - beside its use

    calls: list[dict[str, Any]] = []

    def apply(url: str, **more: Any) -> list[str]:
        calls.append({"url": url, **more})
        return ["0001_pre"]

    monkeypatch.setattr(migrate.migrations, "migrate", apply)
    monkeypatch.setattr(
        migrate.migrations, "set_passwords", lambda _url, words: calls.append(words)
    )
    return calls


def test_migrate_sets_up_and_gives_passwords(
    tickrail: Tickrail, database: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "pw").write_text("hush\n")
    flags = ("--database-url", "postgresql://o@h/d", "--api-password-file", "pw")
    said = tickrail("migrate", *flags)
    assert said.out == "Applied 0001_pre. Passwords are set for tickrail_api.\n"
    assert database == [
        {"url": "postgresql://o@h/d", "partitions": None, "kafka_partitions": None, "half": None},
        {"tickrail_api": "hush"},
    ]


def test_bootstrap_names_a_wrong_flag(tickrail: Tickrail) -> None:
    said = tickrail("bootstrap", "--scopes", "read,rite", "--tenant", "A B")
    assert said.code == 1
    assert "--scopes: 'rite' is no scope" in said.err
    assert "--tenant: 'A B' is no name" in said.err


@pytest.mark.parametrize("name", ["migrate", "bootstrap"])
def test_a_database_that_is_not_there_is_3(tickrail: Tickrail, name: str) -> None:
    said = tickrail(name, "--database-url", "postgresql://u:hush@127.0.0.1:1/d")
    assert said.code == 3
    assert "PostgreSQL does not answer" in said.err
    assert "hush" not in said.err
