"""The first key, straight to the database: nobody could make it through the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from tickrail.core.clock import Clock
from tickrail.core.definition import NAME, NAME_EXPECTED
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.ids import uuid7
from tickrail.core.keys import SCOPES
from tickrail.core.targets import KINDS
from tickrail.store.errors import border
from tickrail.store.keys import make_key
from tickrail.store.tenants import DELETED

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """What was made. `token` is the key and is shown here only; `tenant` None: an operator's."""

    key_id: str
    token: str
    tenant: UUID | None
    tenant_created: bool
    kinds: Sequence[str]


def bootstrap(
    owner_url: str,
    clock: Clock,
    *,
    tenant: str | None = None,
    scopes: Sequence[str] = SCOPES,
    allow: Sequence[str] = (),
    pepper: str = "",
    name: str = "bootstrap",
) -> Bootstrapped:
    """Make a key, and its tenant where it is not there yet.

    Args:
        owner_url: the owner's connection.
        clock: for the ids.
        tenant: the tenant's name; None makes an operator key.
        scopes: of `read`, `run`, `write`, `admin`.
        allow: kinds of target that the queue `default` is to serve besides those it does.
        pepper: the installation's `key_pepper`.
        name: what the key is called.

    Raises:
        InvalidInputError: an unknown scope or kind, a name that cannot be a tenant's, or that of a
            deleted one.
        UnavailableError, SetupError: the database does not answer, or has no schema yet.
    """
    _check(tenant, scopes, allow)
    key = make_key(pepper.encode())
    with border(), psycopg.connect(owner_url, connect_timeout=5) as conn:
        owner, created = None, False
        if tenant is not None:
            row = conn.execute(
                "insert into tenants (id, name) values (%s, %s)"
                " on conflict (name) do nothing returning id",
                [uuid7(clock), tenant],
            ).fetchone()
            created = row is not None
            found = row or _live(conn, tenant)
            owner = None if found is None else UUID(str(found[0]))
        conn.execute(
            "insert into api_keys (id, tenant_id, name, secret_hash, scopes)"
            " values (%s, %s, %s, %s, %s)",
            [key.id, owner, name, key.secret_hash, list(dict.fromkeys(scopes))],
        )
        if allow:
            conn.execute(
                "update queues set kinds = array(select distinct k from unnest(kinds || %s) k"
                " order by k) where name = %s",
                [list(allow), DEFAULT_QUEUE],
            )
        served = conn.execute(
            "select kinds from queues where name = %s", [DEFAULT_QUEUE]
        ).fetchone()
    return Bootstrapped(key.id, key.token, owner, created, list(served[0]) if served else [])


def _live(conn: psycopg.Connection[Any], tenant: str) -> tuple[object, ...] | None:
    """The tenant of this name.

    Raises:
        InvalidInputError: it is deleted: a key of it would be refused.
    """
    found = conn.execute("select id, state from tenants where name = %s", [tenant]).fetchone()
    if found is not None and found[1] == DELETED:
        expected = "another name, or first `tickrail tenants resume` or `tickrail tenants create`"
        raise InvalidInputError(
            "The key cannot be made.", [Problem("/tenant", f"{tenant!r} is deleted", expected)]
        )
    return found


def default_queue_serves(
    owner_url: str, *, add: Sequence[str] = (), drop: Sequence[str] = ()
) -> None:
    """Change which kinds of target the queue `default` serves.

    Args:
        owner_url: the owner's connection.
        add: kinds that it is to serve too.
        drop: kinds that it is not to serve.

    Raises:
        UnavailableError, SetupError: the database does not answer, or has no schema yet.
    """
    with border(), psycopg.connect(owner_url, connect_timeout=5) as conn:
        conn.execute(
            "update queues q set kinds = n.kinds, version = q.version + 1"
            " from (select array(select distinct k from unnest(kinds || %(add)s) k"
            " where not k = any(%(drop)s) order by k) as kinds"
            " from queues where name = %(queue)s) n where q.name = %(queue)s"
            " and not (q.kinds @> n.kinds and n.kinds @> q.kinds)",
            {"add": list(add), "drop": list(drop), "queue": DEFAULT_QUEUE},
        )


def _check(tenant: str | None, scopes: Sequence[str], allow: Sequence[str]) -> None:
    problems = [
        Problem("/scopes", f"{scope!r} is no scope", f"of {', '.join(SCOPES)}")
        for scope in scopes
        if scope not in SCOPES
    ]
    problems += [
        Problem("/allow", f"{kind!r} is no kind of target", f"of {', '.join(KINDS)}")
        for kind in allow
        if kind not in KINDS
    ]
    if not scopes:
        problems.append(Problem("/scopes", "are empty", f"some of {', '.join(SCOPES)}"))
    if tenant is not None and not _is_name(tenant):
        problems.append(Problem("/tenant", f"{tenant!r} is no name", NAME_EXPECTED))
    if problems:
        raise InvalidInputError("The key cannot be made.", problems)


def _is_name(text: str) -> bool:
    """A name that cannot be taken for an id."""
    try:
        UUID(text)
    except ValueError:
        return NAME.fullmatch(text) is not None
    return False
