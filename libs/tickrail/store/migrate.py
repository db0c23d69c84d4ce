"""Migrations, and the installation's one row.

`migrate` is the owner's work; everything else in this file only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import create_engine, pool

from tickrail.core.errors import SetupError
from tickrail.store.errors import border
from tickrail.store.session import DatabaseSettings, connect

SUPPORTED = (15, 18)
"""The PostgreSQL majors that are supported, first and last; newer ones are warned about."""
_LOCK = 0x7469636B7261696C


@dataclass(frozen=True, slots=True)
class Installation:
    """What every process must agree on."""

    partitions: int
    kafka_partitions: int
    generation: int
    tzdata: str


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "tickrail.store:migrations")
    return config


def head() -> str:
    """The newest schema revision that this version knows."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def sqlalchemy_url(url: str) -> str:
    """A libpq URL with the driver named, as SQLAlchemy wants it."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url.removeprefix(scheme)
    return url


def migrate(
    url: str,
    *,
    partitions: int = 64,
    kafka_partitions: int | None = None,
    days_behind: int = 1,
    days_ahead: int = 3,
) -> list[str]:
    """Bring the schema to the newest revision; the revisions that were applied.

    Creates the installation's row and the fence rows on an empty database. Two migrations at once
    wait for each other.

    Args:
        url: the owner's connection.
        partitions: how many schedule partitions (P); fixed from then on.
        kafka_partitions: how many partitions each topic has (K); K divides P. Default: 16 or P.
        days_behind: days of history made behind today.
        days_ahead: and ahead of it.

    Raises:
        SetupError: the server is too old, the schema is newer than this version, or P differs from
            what is stored.
    """
    kafka = kafka_partitions or default_kafka_partitions(partitions)
    if partitions % kafka:
        raise SetupError(f"{kafka} Kafka partitions do not divide {partitions} partitions.")
    engine = create_engine(
        sqlalchemy_url(url),
        poolclass=pool.NullPool,
        connect_args={"application_name": "tickrail-migrate", "connect_timeout": 5},
    )
    with border(), _alembic_lock(url):
        config = _config()
        with _sqlalchemy_border(), engine.connect() as connection:
            before = _revision(url)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
        with psycopg.connect(url, connect_timeout=5) as conn:
            check_version(conn)
            conn.execute(
                "insert into installation (partitions, kafka_partitions, tzdata)"
                " values (%s, %s, %s) on conflict do nothing",
                [partitions, kafka, version("tzdata")],
            )
            stored = conn.execute(
                "select partitions, kafka_partitions from installation"
            ).fetchone()
            if stored != (partitions, kafka):
                raise SetupError(
                    f"This installation has (partitions, Kafka partitions) = {stored}, not"
                    f" {(partitions, kafka)}; set TICKRAIL_PARTITIONS to what it has."
                )
            conn.execute(
                "insert into partitions (partition) select generate_series(0, %s)"
                " on conflict do nothing",
                [partitions - 1],
            )
            conn.execute(
                "select make_day(current_date + n) from generate_series(%s::int, %s::int) n",
                [-days_behind, days_ahead],
            )
    script = ScriptDirectory.from_config(_config())
    return [r.revision for r in script.iterate_revisions("head", before or "base")][::-1]


def default_kafka_partitions(partitions: int) -> int:
    """16, or P where that is smaller; for a P that 16 does not divide, the largest that does."""
    return next(k for k in range(min(16, partitions), 0, -1) if partitions % k == 0)


def read_installation(settings: DatabaseSettings, *, partitions: int | None = None) -> Installation:
    """What every process must agree on, checked before it starts.

    Raises:
        SetupError: the server is too old, the schema is missing, older or newer than this version,
            or the installation has another number of partitions.
        UnavailableError: the database does not answer.
    """
    conn = connect(settings, autocommit=True)
    with border(), conn:
        check_version(conn)
        revision = _read_revision(conn)
        if revision != head():
            raise SetupError(_revision_text(revision))
        row = cast(
            "Any",
            conn.execute(
                "select partitions, kafka_partitions, generation, tzdata from installation"
            ).fetchone(),
        )
    if row is None:
        raise SetupError("The database holds no installation; run `tickrail migrate`.")
    found = Installation(*row)
    if partitions is not None and partitions != found.partitions:
        raise SetupError(
            f"This installation has {found.partitions} partitions and the setting says"
            f" {partitions}: set TICKRAIL_PARTITIONS to {found.partitions}, or leave it out."
        )
    return found


def check_version(conn: psycopg.Connection[Any]) -> int:
    """The server's major version.

    Raises:
        SetupError: older than the first supported one.
    """
    major = conn.info.server_version // 10_000
    if major < SUPPORTED[0]:
        raise SetupError(
            f"PostgreSQL {major} is too old: {SUPPORTED[0]} to {SUPPORTED[1]} are supported."
        )
    return major


def set_passwords(url: str, passwords: dict[str, str]) -> None:
    """Give login roles their passwords (`tickrail_api`, `tickrail_engine`)."""
    with border(), psycopg.connect(url, connect_timeout=5) as conn:
        for role, password in passwords.items():
            conn.execute(
                sql.SQL("alter role {} password {}").format(
                    sql.Identifier(role), sql.Literal(password)
                )
            )


def _revision_text(revision: str | None) -> str:
    if revision is None:
        return "The database has no schema yet: run `tickrail migrate` with the owner's connection."
    known = {r.revision for r in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision in known:
        return (
            f"The schema is at {revision} and this version needs {head()}: run `tickrail migrate`."
        )
    return f"The schema is at {revision}, which is newer than this version knows: update Tickrail."


def _read_revision(conn: psycopg.Connection[Any]) -> str | None:
    there = conn.execute("select to_regclass('alembic_version')").fetchone()
    if there is None or there[0] is None:
        return None
    row = conn.execute("select version_num from alembic_version").fetchone()
    return None if row is None else row[0]


def _revision(url: str) -> str | None:
    with psycopg.connect(url, connect_timeout=5) as conn:
        return _read_revision(conn)


@contextmanager
def _alembic_lock(url: str) -> Iterator[None]:
    """One migration at a time."""
    with psycopg.connect(url, connect_timeout=5, autocommit=True) as conn:
        conn.execute("select pg_advisory_lock(%s)", [_LOCK])
        yield


@contextmanager
def _sqlalchemy_border() -> Iterator[None]:
    """Let the driver's error through as it was before SQLAlchemy wrapped it."""
    try:
        yield
    except Exception as e:
        original = getattr(e, "orig", None)
        if isinstance(original, psycopg.Error):
            raise original from e
        raise
