"""A database and its three roles on a server of our own: for one machine, and for tests.

On a server that others run, their administrator makes the roles; `migrate` needs only the owner's
connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo, sql

from tickrail.store.errors import border

ROLES = ("tickrail_owner", "tickrail_api", "tickrail_engine")
_LOCK = 0x7469636B70726F76


@dataclass(frozen=True, slots=True)
class Urls:
    """A connection for each role."""

    owner: str
    api: str
    engine: str


def provision(admin_dsn: str, database: str, passwords: Mapping[str, str]) -> Urls:
    """Make the roles and the database where they are missing, and set the roles' passwords.

    The owner may make roles and nothing else of a superuser; none of the three bypasses row
    security.

    Args:
        admin_dsn: a superuser's connection.
        database: its name.
        passwords: by role name, for each of ROLES.
    """
    with border(), psycopg.connect(admin_dsn, autocommit=True, connect_timeout=5) as conn:
        conn.execute("select pg_advisory_lock(%s)", [_LOCK])
        for role in ROLES:
            _role(conn, role, passwords[role], creates=role == "tickrail_owner")
        there = conn.execute("select from pg_database where datname = %s", [database]).fetchone()
        if there is None:
            conn.execute(
                sql.SQL("create database {} owner tickrail_owner").format(sql.Identifier(database))
            )
        info = conninfo.conninfo_to_dict(admin_dsn)
    made = [_url(info, database, role, passwords[role]) for role in ROLES]
    return Urls(*made)


@dataclass(frozen=True, slots=True)
class Login:
    """Who a connection is: whether a superuser, and in which database."""

    superuser: bool
    database: str


def login_of(dsn: str) -> Login:
    """Who this connection is on its server.

    Raises:
        UnavailableError: the server does not answer, or refuses the login.
    """
    with border(), psycopg.connect(dsn, connect_timeout=5) as conn:
        row = conn.execute(
            "select rolsuper, current_database() from pg_roles where rolname = current_user"
        ).fetchone()
    return Login(bool(row and row[0]), str(row[1]) if row else "")


def _role(conn: psycopg.Connection[Any], role: str, password: str, *, creates: bool) -> None:
    name = sql.Identifier(role)
    if conn.execute("select from pg_roles where rolname = %s", [role]).fetchone() is None:
        conn.execute(sql.SQL("create role {} login noinherit nobypassrls").format(name))
    conn.execute(
        sql.SQL("alter role {} {} password {}").format(
            name, sql.SQL("createrole" if creates else "nocreaterole"), sql.Literal(password)
        )
    )


def _url(info: Mapping[str, Any], database: str, role: str, password: str) -> str:
    kept = {k: v for k, v in info.items() if k not in ("user", "password", "dbname")}
    return conninfo.make_conninfo("", **kept, user=role, password=password, dbname=database)
