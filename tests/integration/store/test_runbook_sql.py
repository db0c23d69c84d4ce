"""PostgreSQL takes every query of the runbooks, on the tables as this version makes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import uuid4

import psycopg
from tests.support.database import Database
from tests.support.runbooks import DO, LOOK, PAGES, lines_of

SQL = re.compile(r'psql "\$DATABASE" -(?:At)?c "([^"]*)"')


def refused(database: Database, pages: Sequence[str]) -> list[str]:
    """The queries that PostgreSQL does not take, and what it says; none is run."""
    found = []
    with database.admin() as conn:
        for page in pages:
            lines = "\n".join(lines_of(page, LOOK) + lines_of(page, DO))
            for query in SQL.findall(lines):
                try:
                    conn.execute(f"explain {re.sub(r'[$][A-Z_]+', str(uuid4()), query)}".encode())
                except psycopg.Error as e:
                    found.append(f"{query}: {e}")
    return found


def test_postgres_takes_every_query_of_a_runbook(database: Database) -> None:
    pages = [file.read_text("utf-8") for file in PAGES.glob("*.md")]
    shown = sum(len(SQL.findall(page)) for page in pages)
    assert shown > 15
    assert shown == sum(page.count('psql "$DATABASE"') for page in pages)
    assert refused(database, pages) == []


def test_a_query_of_a_table_that_is_not_there_is_seen(database: Database) -> None:
    page = f'## {LOOK}\n\n```sh\npsql "$DATABASE" -c "select 1 from nowhere"\n```\n'
    assert len(refused(database, [page])) == 1
