"""`tickrail system raise-generation` on a real etcd and database."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from tests.support.database import Database
from tests.support.etcd_server import EtcdServer

from tickrail_cli import main

pytestmark = pytest.mark.integration
Raise = Callable[..., tuple[int, str]]


@pytest.fixture
def raise_it(
    database: Database,
    shared_etcd: EtcdServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Raise:
    monkeypatch.setenv("TICKRAIL_DATABASE_URL", database.engine_url)
    monkeypatch.setenv("TICKRAIL_ETCD_ENDPOINTS", shared_etcd.endpoint)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))

    def run(*words: str) -> tuple[int, str]:
        code = main.run(["system", "raise-generation", *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def generation(database: Database) -> object:
    return database.rows("select generation from installation")[0][0]


def test_it_is_refused_where_etcd_lost_nothing(database: Database, raise_it: Raise) -> None:
    code, said = raise_it("--yes")
    assert code == 1
    assert "No new generation is needed. PostgreSQL's highest epoch was made at revision 0" in said
    assert generation(database) == 0
    assert raise_it("--yes", "--force")[0] == 0
    assert generation(database) == 1


def test_it_tells_both_sides_and_asks_where_etcd_went_back(
    database: Database, raise_it: Raise
) -> None:
    database.run("update partitions set epoch = 1000000000 where partition = 1")
    code, said = raise_it()
    assert code == 1
    assert "not confirmed; no generation was begun" in said
    assert "made at revision 1000000000 of generation 0" in said
    assert "knows 0 members and 0 owned partitions" in said
    assert "Is this etcd the one that stays?" in said
    assert generation(database) == 0
    code, said = raise_it("--yes")
    assert code == 0
    assert "The generation is 1 now." in said
    assert raise_it("--yes")[0] == 1, "once is enough"


def test_it_goes_on_without_an_etcd_that_answers(
    database: Database, raise_it: Raise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKRAIL_ETCD_ENDPOINTS", "127.0.0.1:1")
    code, said = raise_it("--yes")
    assert code == 0
    assert "etcd does not answer." in said
    assert generation(database) == 1
