"""The installation as every process finds it: versions, schema, partitions, queues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import psycopg
from psycopg import errors

from tickrail.core.errors import Problem, SettingsError, SetupError
from tickrail.store.errors import border, mapped
from tickrail.store.session import Cursor, DatabaseSettings, connect

SUPPORTED = (15, 18)
"""The PostgreSQL majors that are supported, first and last."""
_REVISION = re.compile(r"v(\d{4}_(?:pre|post))_\w+\.py")


@dataclass(frozen=True, slots=True)
class Installation:
    """What every process must agree on, and what the server promises.

    Attributes:
        partitions: P.
        kafka_partitions: K.
        generation: of epochs and claims.
        tzdata: the version of the zone data that `migrate` found.
        synchronous_standby: whether a commit waits for a standby, so that a failover loses nothing.
    """

    partitions: int
    kafka_partitions: int
    generation: int
    tzdata: str
    synchronous_standby: bool


def revisions() -> tuple[str, ...]:
    """The schema revisions that this version knows, oldest first, by the names of their files.

    Read so, and not by alembic, since every process asks for them when it starts and alembic takes
    as long to load as all the rest.
    """
    folder = files("tickrail.store.migrations") / "versions"
    found = (_REVISION.fullmatch(entry.name) for entry in folder.iterdir())
    return tuple(sorted(match[1] for match in found if match))


def head() -> str:
    """The newest schema revision that this version knows."""
    return revisions()[-1]


def needed(known: Sequence[str] | None = None) -> str:
    """The schema revision that processes of this version need: the newest that only adds.

    What takes away (`post`) comes when no process of the version before runs any more, so this
    version's own run before it, too.
    """
    known = revisions() if known is None else known
    return next(r for r in reversed(known) if r.endswith("_pre"))


def read_installation(
    settings: DatabaseSettings, *, partitions: int | None = None, role: str = ""
) -> Installation:
    """What every process must agree on, checked before it starts.

    Args:
        settings: the process's connection.
        partitions: what its settings say; None: whatever is stored.
        role: `tickrail_api` or `tickrail_engine`, whose rights the connection must have.

    Raises:
        SetupError: the server is too old, the schema is missing, older than this version or later
            and not for this version, or the connection is not the role's.
        SettingsError: the installation has another number of partitions.
        UnavailableError: the database does not answer, or is a standby.
    """
    conn = connect(settings, autocommit=True)
    with border(), conn:
        check_version(conn)
        _check_revision(conn)
        if role:
            _check_role(conn, role)
        if cast("Any", conn.execute("select pg_is_in_recovery()").fetchone())[0]:
            raise mapped(errors.ReadOnlySqlTransaction("it takes no writes"))
        row = cast(
            "Any",
            conn.execute(
                "select partitions, kafka_partitions, generation, tzdata from installation"
            ).fetchone(),
        )
        waits = waits_for_standby(conn)
    if row is None:
        raise SetupError("The database holds no installation; run `tickrail migrate`.")
    found = Installation(*row, *[waits])
    if partitions is not None and partitions != found.partitions:
        problem = Problem(
            "TICKRAIL_PARTITIONS",
            f"is {partitions}, and this installation has {found.partitions}",
            f"{found.partitions}; or leave it out",
        )
        raise SettingsError("The number of partitions is another one.", (problem,))
    return found


_ROLE = """
select current_user, r.rolsuper or r.rolbypassrls,
       pg_has_role(current_user, c.relowner, 'usage'),
       pg_has_role(current_user, %s::name, 'usage')
from pg_roles r, pg_class c
where r.rolname = current_user and c.oid = 'jobs'::regclass
"""


def _check_role(conn: psycopg.Connection[Any], role: str) -> None:
    """Refuse a connection that is not the role's.

    For the API it is a matter of tenants: only row security keeps them apart, and it does not bind
    a superuser, nor the owner, whose policy lets everything through.
    """
    row = cast("Any", conn.execute(_ROLE, [role]).fetchone())
    user, bypasses, owns, fits = row
    if not fits or (role == "tickrail_api" and (bypasses or owns)):
        raise SetupError(
            f"This process must connect to PostgreSQL as {role} and not as {user}:"
            " set database_url (TICKRAIL_DATABASE_URL) to that role's connection."
        )


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


def check_encoding(conn: psycopg.Connection[Any]) -> None:
    """Refuse a database whose texts are not Unicode.

    Raises:
        SetupError: its encoding is not UTF8.
    """
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SetupError(
            f"The database {conn.info.dbname} has the encoding {encoding}, and Tickrail needs UTF8:"
            " `create database ... encoding 'UTF8' template template0` makes one."
        )


def waits_for_standby(at: psycopg.Connection[Any] | Cursor) -> bool:
    """Whether commits on this connection wait until a standby has them.

    By the server's settings, which say what is promised and which everybody may read; who streams
    at this moment is shown to monitoring roles alone.
    """
    row = at.execute(
        "select current_setting('synchronous_standby_names') <> ''"
        " and current_setting('synchronous_commit') not in ('off', 'local')"
    ).fetchone()
    return bool(row and row[0])


def queue_names(settings: DatabaseSettings) -> list[str]:
    """The installation's queues."""
    with border(), connect(settings, autocommit=True) as conn:
        return [str(row[0]) for row in conn.execute("select name from queues order by name")]


def queue_kinds(settings: DatabaseSettings, queues: Sequence[str]) -> dict[str, list[str]]:
    """The kinds of target that these queues serve; those that there are not are left out."""
    with border(), connect(settings, autocommit=True) as conn:
        rows: Any = conn.execute(
            "select name, kinds from queues where name = any(%s) order by name", [list(queues)]
        )
        return {str(name): [str(kind) for kind in kinds] for name, kinds in rows}


def _check_revision(conn: psycopg.Connection[Any]) -> None:
    """Refuse a schema that is older than this version, or that a later one has changed too much.

    A later schema that only adds is no reason to refuse: while a new version is rolled out, the
    processes of the one before may start again.
    """
    revision = read_revision(conn)
    known = revisions()
    if revision in known[known.index(needed()) :]:
        return
    if revision is None:
        raise SetupError(
            "The database has no schema yet: run `tickrail migrate` with the owner's connection."
        )
    if revision in known:
        raise SetupError(
            f"The schema is at {revision} and this version needs {needed()}:"
            " run `tickrail migrate`."
        )
    row = conn.execute("select compatible from installation").fetchone()
    if row is not None and row[0] not in known:
        raise SetupError(
            f"The schema is at {revision}, which only versions that know {row[0]} may use; this"
            f" version knows up to {head()}: update Tickrail."
        )


def read_revision(conn: psycopg.Connection[Any]) -> str | None:
    """The schema's revision; None in a database without one."""
    there = conn.execute("select to_regclass('alembic_version')").fetchone()
    if there is None or there[0] is None:
        return None
    row = conn.execute("select version_num from alembic_version").fetchone()
    return None if row is None else row[0]
