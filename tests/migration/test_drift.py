"""The tables that the API's statements name are those that the migrations make."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import MetaData, Table, create_engine, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Inspector
from tests.support.database import Database

from tickrail.store import quota_tables
from tickrail.store.tables import jobs

OTHERS = {"alembic_version"}
"""Tables that no statement of ours names."""
pytestmark = pytest.mark.integration


def described(table: Table) -> dict[str, Any]:
    """What a table is, in plain values."""
    return {
        "columns": {
            c.name: (
                type_text(c.type),
                bool(c.nullable),
                None if c.server_default is None else str(c.server_default.arg),  # type: ignore[attr-defined]
            )
            for c in table.columns
        },
        "key": sorted(c.name for c in table.primary_key),
        "references": sorted(str(f.target_fullname) for f in table.foreign_keys),
        "unique": sorted(
            tuple(sorted(c.name for c in u.columns))
            for u in table.constraints
            if u.__visit_name__ == "unique_constraint"
        ),
        "indexes": {
            str(i.name): (
                [c.name for c in i.columns],
                bool(i.unique),
                where_text(i.dialect_options["postgresql"]["where"]),
            )
            for i in table.indexes
        },
    }


def type_text(kind: Any) -> str:
    """A type as PostgreSQL names it, with its collation and time zone."""
    return str(kind.compile(dialect=postgresql.dialect()))


def where_text(where: Any) -> str | None:
    return None if where is None else str(where)


def in_database(url: str) -> MetaData:
    engine = create_engine("postgresql+psycopg://", creator=lambda: _connect(url))
    try:
        found = MetaData()
        inspector: Inspector = inspect(engine)
        with engine.connect() as conn:
            days = {
                row[0]
                for row in conn.exec_driver_sql(
                    "select relname from pg_class where relispartition and relkind = 'r'"
                )
            }
        names = [n for n in inspector.get_table_names() if n not in days | OTHERS]
        found.reflect(engine, only=names)
        return found
    finally:
        engine.dispose()


def _connect(url: str) -> Any:
    import psycopg  # noqa: PLC0415 - beside the one use

    return psycopg.connect(url)


def test_the_tables_are_those_of_the_migrations(database: Database) -> None:
    made = in_database(database.owner_url)
    assert quota_tables.quotas.name in jobs.metadata.tables
    assert sorted(made.tables) == sorted(jobs.metadata.tables)
    for name, table in jobs.metadata.tables.items():
        assert described(table) == described(made.tables[name]), name


def test_a_column_that_a_migration_adds_is_seen(database: Database) -> None:
    database.run("alter table jobs add column planted text")
    made = in_database(database.owner_url).tables["jobs"]
    assert described(jobs.metadata.tables["jobs"]) != described(made)


def test_an_index_that_a_migration_drops_is_seen(database: Database) -> None:
    database.run("drop index jobs_due")
    made = in_database(database.owner_url).tables["jobs"]
    assert described(jobs.metadata.tables["jobs"]) != described(made)
