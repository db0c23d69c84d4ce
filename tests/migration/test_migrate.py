"""Migrations: once, again, at the same time, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import conninfo
from tests.support.database import Database

from tickrail.core.clock import SystemClock
from tickrail.core.errors import InvalidInputError, SetupError, UnavailableError
from tickrail.core.keys import SCOPES
from tickrail.store.bootstrap import bootstrap, default_queue_serves
from tickrail.store.installation import (
    head,
    needed,
    queue_kinds,
    read_installation,
    revisions,
)
from tickrail.store.migrate import migrate
from tickrail.store.session import DatabaseSettings

pytestmark = pytest.mark.integration


def counts(database: Database) -> tuple[int, int]:
    """P and K as stored."""
    found = read_installation(DatabaseSettings(database.api_url))
    return found.partitions, found.kafka_partitions


def test_an_empty_database_gets_the_usual_counts(empty_database: Database) -> None:
    applied = migrate(empty_database.owner_url)
    assert applied[-1] == head()
    assert counts(empty_database) == (64, 16)
    assert empty_database.rows("select count(*), max(partition) from partitions") == [(64, 63)]


def test_again_keeps_what_is_stored(database: Database) -> None:
    before = database.rows("select id, partitions, kafka_partitions from installation")
    assert migrate(database.owner_url) == []
    assert migrate(database.owner_url, partitions=4) == []
    assert migrate(database.owner_url, kafka_partitions=4) == []
    assert database.rows("select id, partitions, kafka_partitions from installation") == before


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"partitions": 8}, "TICKRAIL_PARTITIONS is 8"),
        ({"kafka_partitions": 2}, "TICKRAIL_TOPIC_PARTITIONS is 2"),
    ],
)
def test_other_counts_are_refused(database: Database, given: dict[str, int], name: str) -> None:
    with pytest.raises(SetupError, match=f"{name} and this installation has 4"):
        migrate(database.owner_url, **given)


def test_counts_that_do_not_divide_are_refused(empty_database: Database) -> None:
    with pytest.raises(SetupError, match="do not divide"):
        migrate(empty_database.owner_url, partitions=8, kafka_partitions=3)
    assert migrate(empty_database.owner_url, partitions=8) == []
    assert counts(empty_database) == (8, 8)


def test_a_database_that_is_not_in_utf8_is_refused(empty_database: Database) -> None:
    name = f"{empty_database.name}_ascii"
    empty_database.run(
        f"create database {name} encoding 'SQL_ASCII' locale_provider libc locale 'C'"
        " template template0 owner tickrail_owner"
    )
    try:
        with pytest.raises(SetupError, match=f"{name} has the encoding SQL_ASCII.*needs UTF8"):
            migrate(conninfo.make_conninfo(empty_database.owner_url, dbname=name))
    finally:
        empty_database.run(f"drop database {name}")


def test_four_at_once_migrate_once(empty_database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: migrate(empty_database.owner_url, partitions=4), range(4)))
    assert sorted(map(len, done)) == [0, 0, 0, len(max(done, key=len))]
    assert len(max(done, key=len)) >= 1
    assert empty_database.rows("select count(*) from installation") == [(1,)]


def test_one_half_after_the_other(empty_database: Database) -> None:
    """What `_pre` adds is enough to run on; no revision takes anything away yet."""
    with pytest.raises(SetupError, match="--half pre"):
        migrate(empty_database.owner_url, half="post")
    assert migrate(empty_database.owner_url, partitions=4, half="pre")[-1] == needed()
    assert counts(empty_database) == (4, 4)
    assert migrate(empty_database.owner_url, half="pre") == []
    left = revisions()[revisions().index(needed()) + 1 :]
    assert tuple(migrate(empty_database.owner_url, half="post")) == left


def test_a_later_schema_that_only_adds_is_run_on(database: Database) -> None:
    """While a new version is rolled out, a process of the one before may start again."""
    database.run("update alembic_version set version_num = '9999_later'")
    assert counts(database) == (4, 4)
    database.run(f"update installation set compatible = '{head()}'")
    assert counts(database) == (4, 4)


def test_a_later_schema_that_took_something_away_is_refused(database: Database) -> None:
    database.run("update alembic_version set version_num = '9999_later'")
    database.run("update installation set compatible = '9998_post'")
    with pytest.raises(SetupError, match="only versions that know 9998_post") as refused:
        counts(database)
    assert "update Tickrail" in str(refused.value)
    with pytest.raises(SetupError, match="at 9999_later, and this version knows up to"):
        migrate(database.owner_url)


def test_an_earlier_schema_is_refused_with_what_to_run(database: Database) -> None:
    database.run("update alembic_version set version_num = '0009_pre'")
    with pytest.raises(
        SetupError, match=f"at 0009_pre .* needs {needed()}: run `tickrail migrate`"
    ):
        counts(database)


def test_a_database_without_a_schema_is_refused_by_a_process(empty_database: Database) -> None:
    with pytest.raises(SetupError, match="tickrail migrate"):
        read_installation(DatabaseSettings(empty_database.engine_url))


def test_the_first_key(database: Database) -> None:
    clock = SystemClock()
    first = bootstrap(database.owner_url, clock, tenant="acme", allow=["command"])
    assert (first.tenant_created, "command" in first.kinds) == (True, True)
    again = bootstrap(database.owner_url, clock, tenant="acme", scopes=["read"])
    assert (again.tenant, again.tenant_created) == (first.tenant, False)
    assert again.token != first.token
    operator = bootstrap(database.owner_url, clock)
    assert operator.tenant is None
    rows = database.rows("select id, tenant_id, scopes from api_keys order by created_at")
    assert rows == [
        (first.key_id, first.tenant, list(SCOPES)),
        (again.key_id, first.tenant, ["read"]),
        (operator.key_id, None, list(SCOPES)),
    ]


def test_the_default_queue_serves_tasks_where_somebody_says_so(database: Database) -> None:
    found = "select kinds, version from queues where name = 'default'"
    assert database.rows(found) == [(["webhook", "kafka"], 1)]
    for _ in range(2):
        default_queue_serves(database.owner_url, add=["task"], drop=["noop"])
        assert database.rows(found) == [(["kafka", "task", "webhook"], 2)]
    for _ in range(2):
        default_queue_serves(database.owner_url, drop=["task", "command"])
        assert database.rows(found) == [(["kafka", "webhook"], 3)]
    assert queue_kinds(DatabaseSettings(database.engine_url), ["default", "absent"]) == {
        "default": ["kafka", "webhook"]
    }


def test_a_first_key_that_cannot_be(database: Database, empty_database: Database) -> None:
    clock = SystemClock()
    with pytest.raises(InvalidInputError) as refused:
        bootstrap(
            database.owner_url, clock, tenant="A b", scopes=["root"], allow=["shell", "webhook"]
        )
    assert [p.pointer for p in refused.value.problems] == ["/scopes", "/allow", "/tenant"]
    with pytest.raises(InvalidInputError):
        bootstrap(database.owner_url, clock, tenant="00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidInputError):
        bootstrap(database.owner_url, clock, scopes=[])
    with pytest.raises(SetupError, match="tickrail migrate"):
        bootstrap(empty_database.owner_url, clock)
    with pytest.raises(UnavailableError):
        bootstrap("host=127.0.0.1 port=1 dbname=x", clock)
    assert database.rows("select count(*) from api_keys") == [(0,)]
