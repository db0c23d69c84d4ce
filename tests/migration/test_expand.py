"""The schema only grows: what processes of an earlier revision use is still there, and theirs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from tests.support.database import Database
from tests.support.tree import ROOT

pytestmark = pytest.mark.integration
VERSIONS = sorted((ROOT / "libs/tickrail/store/migrations/versions").glob("v*_pre_*.sql"))
FIRST = 4
"""The first that anybody runs in earnest; one before took away tables that nobody used."""
UNUSED = {("right", "tickrail_api: UPDATE")}
"""Taken away from `api_keys` (0006): no earlier version of the API wrote there."""
OURS = "('tickrail_owner', 'tickrail_api', 'tickrail_engine')"
FUNCTIONS = (
    "select 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',"
    " pg_get_function_result(p.oid) from pg_proc p"
    " where p.pronamespace = 'public'::regnamespace"
)
COLUMNS = (
    "select 'column', c.table_name || '.' || c.column_name, c.data_type"
    " from information_schema.columns c where c.table_schema = 'public'"
)
RIGHTS = (
    "select 'right', grantee || ': ' || privilege_type, table_name || '.' || column_name"
    f" from information_schema.column_privileges where grantee in {OURS}"
    " and table_schema = 'public'"
    " union select 'right', grantee || ': delete', table_name"
    " from information_schema.table_privileges"
    f" where privilege_type = 'DELETE' and grantee in {OURS} and table_schema = 'public'"
    " union select 'right', grantee || ': execute', routine_name"
    f" from information_schema.routine_privileges where grantee in {OURS}"
    " and routine_schema = 'public'"
)
DEMANDED = (
    "select c.table_name || '.' || c.column_name from information_schema.columns c"
    " where c.table_schema = 'public' and c.is_nullable = 'NO' and c.column_default is null"
    " and c.is_identity = 'NO' and c.is_generated = 'NEVER'"
)


def facts(conn: psycopg.Connection[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """What a process may use."""
    query = " union all ".join(f"({q})" for q in (FUNCTIONS, COLUMNS, RIGHTS))
    return set(conn.execute(query.encode()).fetchall())


def demanded(conn: psycopg.Connection[tuple[object, ...]]) -> set[str]:
    """The columns that every insert has to name."""
    return {str(row[0]) for row in conn.execute(DEMANDED.encode())}


def tables(names: set[str]) -> set[str]:
    """The tables of columns."""
    return {name.partition(".")[0] for name in names}


def apply(conn: psycopg.Connection[tuple[object, ...]], file: Path) -> None:
    """Run a revision."""
    conn.execute(file.read_text().encode())


def begun(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """The schema as of the first."""
    conn.execute("create table alembic_version (version_num text)")
    for file in VERSIONS[: FIRST + 1]:
        apply(conn, file)


def test_each_revision_leaves_what_the_ones_before_use(empty_database: Database) -> None:
    with psycopg.connect(empty_database.owner_url) as conn:
        begun(conn)
        was, needs = facts(conn), demanded(conn)
        for before, file in pairwise(VERSIONS[FIRST:]):
            there = tables({str(n) for kind, n, _ in was if kind == "column"})
            apply(conn, file)
            now = facts(conn)
            gone = {f for f in was - now if f[:2] not in UNUSED or "api_keys." not in str(f[2])}
            assert gone == set(), f"{file.name} takes away what {before.name} had"
            more = {n for n in demanded(conn) - needs if n.partition(".")[0] in there}
            assert more == set(), f"{file.name} demands of {before.name}'s inserts what they lack"
            was, needs = now, demanded(conn)
    assert len(VERSIONS) >= 9


def test_what_takes_away_is_found(empty_database: Database) -> None:
    """The look itself: a column that is dropped, a right that is taken, a column demanded."""
    with psycopg.connect(empty_database.owner_url) as conn:
        begun(conn)
        was, needs = facts(conn), demanded(conn)
        conn.execute("alter table job_versions drop column definition cascade")
        conn.execute("revoke select (id) on api_keys from tickrail_api")
        conn.execute("revoke select on api_keys from tickrail_api")
        conn.execute("alter table jobs add column extra int not null")
        gone = {str(name) for _, name, _ in was - facts(conn)}
        assert "tickrail_api: SELECT" in gone
        assert demanded(conn) - needs == {"jobs.extra"}
