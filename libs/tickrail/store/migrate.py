"""Migrations: the owner's work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import psycopg
from alembic import command
from alembic.config import Config
from psycopg import sql
from sqlalchemy import create_engine, pool

from tickrail.core.errors import SetupError
from tickrail.core.zones import TZDATA_VERSION
from tickrail.store.errors import border
from tickrail.store.installation import (
    check_encoding,
    check_version,
    needed,
    read_revision,
    revisions,
)

_LOCK = 0x7469636B7261696C
DEFAULT_PARTITIONS = 64
Half = Literal["pre", "post"]
"""What only adds, run before any process of a new version; what takes away, run after the last
process of the version before."""


def alembic_config() -> Config:
    """Where the migrations are."""
    config = Config()
    config.set_main_option("script_location", "tickrail.store:migrations")
    return config


def migrate(
    url: str,
    *,
    partitions: int | None = None,
    kafka_partitions: int | None = None,
    days_behind: int = 1,
    days_ahead: int = 3,
    half: Half | None = None,
) -> list[str]:
    """Bring the schema to the newest revision, or to the end of one half; what was applied.

    Creates the installation's row and the fence rows on an empty database. Two migrations at once
    wait for each other.

    Args:
        url: the owner's connection.
        partitions: how many schedule partitions (P), fixed from then on. None keeps what is stored;
            64 on an empty database.
        kafka_partitions: how many partitions each topic has (K); K divides P. None keeps what is
            stored; on an empty database 16, or P where that is smaller.
        days_behind: days of history made behind today.
        days_ahead: and ahead of it.
        half: of the revisions, for an upgrade under load; None: all of them.

    Raises:
        SetupError: the server is too old, the database is not in UTF8, the schema is newer than
            this version, P or K differs from what is stored, K does not divide P, or a half cannot
            be run by itself.
    """

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(url, application_name="tickrail-migrate", connect_timeout=5)

    engine = create_engine("postgresql+psycopg://", poolclass=pool.NullPool, creator=connect)
    with border(), connect() as conn:
        check_version(conn)
        check_encoding(conn)
    with border(), _alembic_lock(url):
        config = alembic_config()
        with _sqlalchemy_border(), engine.connect() as connection:
            before = _revision(url)
            pending = pending_of(revisions(), before, half)
            config.attributes["connection"] = connection
            if pending:
                command.upgrade(config, pending[-1])
            connection.commit()
        with psycopg.connect(url, connect_timeout=5) as conn:
            count = _agree(conn, partitions, kafka_partitions)
            conn.execute(
                "insert into partitions (partition, tzdata) select generate_series(0, %s), %s::text"
                " on conflict do nothing",
                [count - 1, TZDATA_VERSION],
            )
            conn.execute(
                "select make_day(current_date + n) from generate_series(%s::int, %s::int) n",
                [-days_behind, days_ahead],
            )
    return list(pending)


def pending_of(known: Sequence[str], at: str | None, half: Half | None) -> Sequence[str]:
    """The revisions that are to be applied, oldest first.

    Args:
        known: those of this version, oldest first.
        at: the schema's; None: there is none yet.
        half: which are wanted; None: all.

    Raises:
        SetupError: the schema is newer than this version; or the first half would have to run
            through a revision that takes away what the version before still uses; or the second
            is asked for before the first.
    """
    if at is not None and at not in known:
        raise SetupError(
            f"The schema is at {at}, and this version knows up to {known[-1]}: update Tickrail."
        )
    done = 0 if at is None else known.index(at) + 1
    middle = max(done, known.index(needed(known)) + 1)
    if half == "post":
        if done < middle:
            raise SetupError(
                f"The schema is at {at or 'nothing'}: run `tickrail migrate --half pre`, and let"
                " every process be of this version, before `--half post`."
            )
        return known[done:]
    if half == "pre":
        between = [r for r in known[done:middle] if r.endswith("_post")]
        if at is not None and between:
            raise SetupError(
                f"{between[0]} lies between the schema ({at}) and {known[middle - 1]} and takes"
                " away what processes that run now may use: upgrade to the version in between"
                " first, or stop all processes and run `tickrail migrate` without --half."
            )
        return known[done:middle]
    return known[done:]


def _agree(conn: psycopg.Connection[Any], partitions: int | None, kafka: int | None) -> int:
    """Store P and K where there are none yet; the P that is stored.

    Raises:
        SetupError: another P or K is stored, or K does not divide P.
    """
    stored = conn.execute("select partitions, kafka_partitions from installation").fetchone()
    if stored is None:
        p = partitions or DEFAULT_PARTITIONS
        k = kafka or default_kafka_partitions(p)
        if p % k:
            raise SetupError(
                f"{k} Kafka partitions do not divide {p} partitions: set TICKRAIL_TOPIC_PARTITIONS"
                " to a divisor, or leave it out."
            )
        conn.execute(
            "insert into installation (partitions, kafka_partitions, tzdata) values (%s, %s, %s)",
            [p, k, TZDATA_VERSION],
        )
        return p
    for name, wanted, found in (
        ("TICKRAIL_PARTITIONS", partitions, stored[0]),
        ("TICKRAIL_TOPIC_PARTITIONS", kafka, stored[1]),
    ):
        if wanted not in (None, found):
            raise SetupError(
                f"{name} is {wanted} and this installation has {found}: set it so, or leave it out."
            )
    return int(stored[0])


def default_kafka_partitions(partitions: int) -> int:
    """16, or P where that is smaller; for a P that 16 does not divide, the largest that does."""
    return next(k for k in range(min(16, partitions), 0, -1) if partitions % k == 0)


def set_passwords(url: str, passwords: dict[str, str]) -> None:
    """Give login roles their passwords (`tickrail_api`, `tickrail_engine`)."""
    with border(), psycopg.connect(url, connect_timeout=5) as conn:
        for role, password in passwords.items():
            conn.execute(
                sql.SQL("alter role {} password {}").format(
                    sql.Identifier(role), sql.Literal(password)
                )
            )


def _revision(url: str) -> str | None:
    with psycopg.connect(url, connect_timeout=5) as conn:
        return read_revision(conn)


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
