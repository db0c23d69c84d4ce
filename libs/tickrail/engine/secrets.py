"""Secrets of a tenant: put, delete, and which jobs name one.

Each use case runs in the caller's transaction. What is audited and answered is the name, never the
value.
"""

from __future__ import annotations

from typing import Final

from tickrail.core.documents import text_problem, type_name
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionFailedError,
    Problem,
)
from tickrail.core.ports_api import Transaction
from tickrail.core.secrets import MAX_SECRET, NAME_EXPECTED, SECRET_NAME, SecretRecord
from tickrail.core.targets import parse_target, target_secrets
from tickrail.engine.job_rules import ANY, Precondition

_NAMED: Final = 20
_EXPECTED: Final = f"a text of 1 to {MAX_SECRET} bytes"


def read_secret(name: str, document: object) -> bytes:
    """The value in a document of the API, `{"value": "..."}`.

    Raises:
        InvalidInputError: with every problem; no message holds the value.
    """
    problems: list[Problem] = []
    if not SECRET_NAME.fullmatch(name):
        problems.append(Problem("/name", f"is {name[:128]!r}", NAME_EXPECTED))
    value: object = None
    if not isinstance(document, dict):
        problems.append(Problem("", f"is {type_name(document)}", '{"value": "..."}'))
    else:
        value = document.get("value")
        problems += [
            Problem(f"/{key[:100]}", "is not a known field", "value")
            for key in document
            if key not in ("value", "name", "updated_at")
        ]
        if document.get("name", name) != name:
            problems.append(Problem("/name", "is not the name in the path", repr(name[:128])))
        if "value" not in document:
            problems.append(Problem("/value", "is missing", _EXPECTED))
        elif not isinstance(value, str):
            problems.append(Problem("/value", f"is {type_name(value)}", _EXPECTED))
        elif why := text_problem(value):
            problems.append(Problem("/value", why, _EXPECTED))
        elif not 0 < len(value.encode()) <= MAX_SECRET:
            problems.append(Problem("/value", f"has {len(value.encode())} bytes", _EXPECTED))
    if problems or not isinstance(value, str):
        raise InvalidInputError("The secret is not valid.", problems)
    return value.encode()


def require_secret(tx: Transaction, name: str) -> SecretRecord:
    """The secret, without its value.

    Raises:
        NotFoundError: this tenant has no such secret.
    """
    found = tx.secrets.find(name)
    if found is None:
        raise NotFoundError(f"There is no secret of the name {name!r}.")
    return found


def put_secret(
    tx: Transaction, name: str, value: bytes, wanted: Precondition = ANY
) -> tuple[SecretRecord, bool]:
    """Keep a value under a name, in place of what was there; whether the name is new.

    Secrets have no versions: of a precondition, only whether there must be one counts.

    Raises:
        SetupError: the installation has no keys for secrets.
        PreconditionFailedError: it is there and must not be, or the other way round.
    """
    if wanted.versions is not None:
        raise PreconditionFailedError("Secrets have no versions; If-Match takes * alone here.")
    if wanted.exists is not None:
        there = tx.secrets.find(name, lock=True) is not None
        if there and not wanted.exists:
            raise PreconditionFailedError("The secret is there already.")
        if wanted.exists and not there:
            raise PreconditionFailedError("There is no such secret.")
    created = tx.secrets.put(name, value)
    tx.audit("secret.create" if created else "secret.change", f"secret:{name}")
    return SecretRecord(name, tx.now), created


def delete_secret(tx: Transaction, name: str) -> None:
    """Delete a secret that no live job names; one that is not there is deleted already.

    Raises:
        ConflictError: jobs name it; says which.
    """
    if tx.secrets.find(name, lock=True) is None:
        return
    users = jobs_naming(tx, name)
    if users:
        more = " and more" if len(users) > _NAMED else ""
        raise ConflictError(
            f"The secret is used by {', '.join(users[:_NAMED])}{more}.",
            [
                Problem("", f"the job {job!r} names it", "a job without this secret")
                for job in users[:_NAMED]
            ],
        )
    tx.secrets.delete(name)
    tx.audit("secret.delete", f"secret:{name}")


def jobs_naming(tx: Transaction, name: str) -> list[str]:
    """Names of live jobs whose target names a secret, at most one more than are told."""
    found: list[str] = []
    after = ""
    while len(found) <= _NAMED:
        page = tx.secrets.targets_with(name, after)
        if not page:
            break
        after = page[-1][0]
        found += [job for job, target in page if _names(target, name)]
    return found[: _NAMED + 1]


def _names(document: object, name: str) -> bool:
    """Whether a target names the secret; one that cannot be read is held to."""
    try:
        target = parse_target(document)
    except InvalidInputError:
        return True
    return any(found == name for _, found in target_secrets(target))
