"""A database for each test: a copy of one migrated template, with the installation's three roles.

Ask for `database`. Nothing in it is shared with another test but the roles and their passwords.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest
from psycopg import conninfo, sql
from tests.support.servers import Servers

from tickrail.store.migrate import migrate
from tickrail.store.provision import ROLES, provision

PARTITIONS = 4
PASSWORDS = {role: f"{role}-in-tests" for role in ROLES}


@dataclass(frozen=True)
class Database:
    """A database of P = 4 and a connection string for each role; `admin_url` is the superuser's."""

    name: str
    owner_url: str
    api_url: str
    engine_url: str
    admin_url: str

    def admin(self) -> psycopg.Connection[tuple[object, ...]]:
        """A superuser's connection, which row security does not bind; each statement commits."""
        return psycopg.connect(self.admin_url, autocommit=True)

    def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        """What the superuser sees."""
        with self.admin() as conn:
            return conn.execute(query.encode(), parameters).fetchall()

    def run(self, statement: str, *parameters: object) -> None:
        """Run one statement as the superuser."""
        with self.admin() as conn:
            conn.execute(statement.encode(), parameters)


@pytest.fixture(scope="session")
def postgres_admin(stack: Servers) -> Iterator[str]:
    """The superuser's connection string, on a server whose roles have the tests' passwords.

    On a server that runs an installation already, the roles' own passwords come back at the end.
    """
    before = "select rolname, rolpassword from pg_authid where rolname = any(%s)"
    with psycopg.connect(stack.postgres_dsn) as conn:
        kept = conn.execute(before, [list(ROLES)]).fetchall()
    yield stack.postgres_dsn
    with psycopg.connect(stack.postgres_dsn) as conn:
        for role, password in kept:
            change = sql.SQL("alter role {} password {}")
            conn.execute(change.format(sql.Identifier(role), sql.Literal(password)))


@pytest.fixture(scope="session")
def template_database(postgres_admin: str) -> Iterator[str]:
    """The name of the migrated database that the others are copied from."""
    with new_database(postgres_admin) as made:
        migrate(made.owner_url, partitions=PARTITIONS)
        yield made.name


@pytest.fixture
def database(postgres_admin: str, template_database: str) -> Iterator[Database]:
    """A migrated database of the test's own."""
    with new_database(postgres_admin, template_database) as made:
        yield made


@pytest.fixture
def empty_database(postgres_admin: str) -> Iterator[Database]:
    """A database without a schema, owned by the owner's role."""
    with new_database(postgres_admin) as made:
        yield made


@contextmanager
def new_database(admin_dsn: str, template: str | None = None) -> Iterator[Database]:
    """A database for the length of the block: empty, or a copy of a template."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(admin_dsn, autocommit=True) as conn:
        if template is None:
            provision(admin_dsn, name, PASSWORDS)
        else:
            copy = sql.SQL("create database {} template {} owner tickrail_owner")
            conn.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))
    urls = [
        conninfo.make_conninfo(admin_dsn, dbname=name, user=role, password=PASSWORDS[role])
        for role in ROLES
    ]
    try:
        yield Database(name, *urls, conninfo.make_conninfo(admin_dsn, dbname=name))
    finally:
        with psycopg.connect(admin_dsn, autocommit=True) as conn:
            drop = sql.SQL("drop database if exists {} with (force)")
            conn.execute(drop.format(sql.Identifier(name)))
