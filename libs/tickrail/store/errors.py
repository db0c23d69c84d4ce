"""Maps the driver's errors to ours at the border of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from tickrail.core.errors import SetupError, TickrailError, UnavailableError

NO_PARTITION = "no partition of relation"

_AWAY = "The database does not answer as it should; the same request may succeed later."
_NOT_READY = "The installation's database is not ready for this; its log says why."
"""What callers of the API are told in place of the driver's words, which name addresses."""
_MIGRATE = "run `tickrail migrate` with the owner's connection"
_WRITABLE = "name every server in database_url, with target_session_attrs=read-write"
_PASSING = (
    (
        (errors.InvalidPassword, errors.InvalidAuthorizationSpecification),
        "PostgreSQL refuses the credentials: {}.",
    ),
    (
        (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement),
        "A pooler changed the session: {}; see prepare_statements.",
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        f"This PostgreSQL server is a standby: {{}}; {_WRITABLE}.",
    ),
)


def mapped(e: psycopg.Error) -> TickrailError:
    """Our error for one of the driver's."""
    text = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
    if isinstance(e, errors.UndefinedTable | errors.UndefinedColumn | errors.UndefinedFunction):
        return SetupError(
            f"The database lacks something that this version needs: {text}; {_MIGRATE}.",
            public=_NOT_READY,
        )
    if isinstance(e, errors.InsufficientPrivilege):
        return SetupError(f"The database role may not do this: {text}.", public=_NOT_READY)
    for classes, sentence in _PASSING:
        if isinstance(e, classes):
            return UnavailableError(sentence.format(text), public=_AWAY)
    if isinstance(e, psycopg.DataError | psycopg.ProgrammingError | psycopg.IntegrityError):
        # Nothing that trying again could help: a fault of ours, shown as such.
        return TickrailError(f"PostgreSQL refuses a statement: {text}.")
    return UnavailableError(f"PostgreSQL does not answer as it should: {text}.", public=_AWAY)


@contextmanager
def border() -> Iterator[None]:
    """Raise our errors instead of the driver's."""
    try:
        yield
    except psycopg.Error as e:
        raise mapped(e) from e
