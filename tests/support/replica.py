"""A streaming replica of a PostgreSQL of the tests, to fail over to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import conninfo, sql
from tests.support.until import until

from tickrail.local import procs, users
from tickrail.local.errors import LocalServersError
from tickrail.local.ports import LOOPBACK, any_free
from tickrail.local.postgres import Postgres

NAME = "replica"


class _Standby(Postgres):
    """A server whose data come from another server."""

    primary: Postgres

    def prepare(self) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        info = {"host": LOOPBACK, "port": self.primary.port, "user": "postgres"}
        command = [
            str(self._program("pg_basebackup")),
            f"--pgdata={self._data}",
            "--dbname=" + conninfo.make_conninfo("", **info, application_name=NAME),
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
        ]
        with self.place.log.open("ab") as out:
            child = procs.popen(
                command,
                out=out,
                cwd=self.place.folder,
                user=self.user,
                environment={"PGPASSWORD": self.primary.password},
            )
            code = child.wait(60)
        if code:
            raise LocalServersError(f"pg_basebackup failed:\n{procs.tail(self.place.log)}")


class Replica:
    """The replica: made and streaming when the block begins, gone after it.

    Args:
        primary: what it follows.
        synchronous: whether the primary's commits wait for it from then on.
        port: where it listens; any free one if not given.
        database: the one that `query` looks into.
    """

    def __init__(
        self, primary: Postgres, *, synchronous: bool, port: int = 0, database: str = "postgres"
    ) -> None:
        self.primary = primary
        self.database = database
        self.synchronous = synchronous
        wanted = primary.place.folder.parent / f"{primary.place.folder.name}-{NAME}"
        folder = users.folder_for(primary.user, wanted)
        place = replace(
            primary.place,
            folder=folder,
            log=primary.place.log.with_name(f"{NAME}.log"),
            changed=lambda: None,  # it is not the stack's
        )
        self.server = _Standby(
            place, port or any_free({primary.port}), _password_file(primary), primary.user
        )
        self.server.primary = primary

    def __enter__(self) -> Self:
        self.server.start()
        self.server.wait_ready()
        until(self._streams, 30, 0.05)
        if self.synchronous:
            configure(self.primary.dsn, synchronous_standby_names=NAME)
            until(lambda: self._state() == ("streaming", "sync"), 30, 0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.kill()

    def detach(self) -> None:
        """Stop the stream: what is committed from now on never comes here."""
        configure(self.server.dsn, primary_conninfo="")
        until(lambda: _one(self.server.dsn, "select count(*) from pg_stat_wal_receiver") == 0, 30)

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What the replica holds, in the database that the installation has there."""
        dsn = conninfo.make_conninfo(self.server.dsn, dbname=self.database)
        with psycopg.connect(dsn, autocommit=True) as conn:
            return conn.execute(query.encode(), values).fetchall()

    def promote(self) -> None:
        """Have it take writes; it takes them when this returns."""
        assert _one(self.server.dsn, "select pg_promote(true, 60)")
        until(lambda: not _one(self.server.dsn, "select pg_is_in_recovery()"), 30, 0.02)

    def fail_over(self) -> None:
        """SIGKILL the primary and promote."""
        self.primary.kill()
        self.promote()

    def _streams(self) -> bool:
        state = self._state()
        return state is not None and state[0] == "streaming"

    def _state(self) -> tuple[Any, ...] | None:
        query = "select state, sync_state from pg_stat_replication where application_name = %s"
        with psycopg.connect(self.primary.dsn) as conn:
            return conn.execute(query, [NAME]).fetchone()


def with_standbys(url: str, *ports: int) -> str:
    """A connection string that leads to the one of several servers that takes writes.

    Args:
        url: of the first server, or of a proxy in front of it.
        ports: where the others listen, or will.
    """
    info = conninfo.conninfo_to_dict(url)
    hosts = ",".join([str(info["host"]), *(LOOPBACK for _ in ports)])
    all_ports = ",".join([str(info["port"]), *map(str, ports)])
    return conninfo.make_conninfo(
        url, host=hosts, port=all_ports, target_session_attrs="read-write"
    )


def configure(dsn: str, **settings: str) -> None:
    """Change settings of a running server, in force when this returns or soon after."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name, value in settings.items():
            change = sql.SQL("alter system set {} = {}")
            conn.execute(change.format(sql.Identifier(name), sql.Literal(value)))
        conn.execute("select pg_reload_conf()")


def _one(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def _password_file(primary: Postgres) -> Path:
    """The replica has the primary's roles, and so its passwords."""
    return primary._password_file
