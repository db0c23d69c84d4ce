"""/v1/api-keys: a tenant's keys; those of operators, where one names no tenant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.keys import ID, PREFIX, KeyRecord, KeyTransaction, Maker, read_grace, read_key
from tickrail.engine.keys import require_key, revoke_key
from tickrail_api.call import Administers, Answer, Asks, Call
from tickrail_api.openapi import answers, body, page
from tickrail_api.paging import PageParameters, keyset, listed, read_instant
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.key import (
    API_KEY,
    MADE_KEY,
    NEW_KEY,
    ROTATE_KEY,
    ApiKey,
    ApiKeyPage,
    MadeApiKey,
    NewApiKey,
    RotateApiKey,
)
from tickrail_api.threads import Routes

router = Routes(tags=["api-keys"])


class KeyParameters(PageParameters):
    """The list of keys."""

    state: Annotated[
        Literal["active", "expired", "revoked"] | None, Field(description="Only keys in it.")
    ] = None


@router.get("/v1/api-keys", responses=answers(ApiKeyPage, page(API_KEY)))
def list_api_keys(call: Administers, query: Annotated[KeyParameters, Query()]) -> Response:
    """List keys, the newest first, without their secrets. Scope: admin.

    An operator who names no tenant sees the operators' keys. Keys that have ended are kept as long
    as the history.
    """
    scope = ["api-keys", query.state]
    request = keyset(query, "-created_at", scope, read_instant, _read_id)
    with call.read_here() as tx:
        found = tx.keys.page(query.state, request)
        items = [key_answer(k, tx) for k in found.items]
    after = found.after and query.next(scope, [found.after.value, found.after.id])
    return Answer(listed(items, after)).response()


@router.post(
    "/v1/api-keys",
    dependencies=plain,
    responses=answers(MadeApiKey, MADE_KEY, 201),
    openapi_extra=body(NewApiKey, NEW_KEY),
)
def create_api_key(call: Administers) -> Response:
    """Make a key. Scope: admin.

    Whoever makes a key, by a key or by an issuer's token, gives it no scope that it lacks, no
    higher rate and no later end than its own. `token` is the whole key; it is told in this answer
    alone. An operator who names no tenant makes an operator's key.
    """
    document, by = call.document(), _maker(call)

    def effect(tx: KeyTransaction) -> Answer:
        draft = read_key(document, tx.now)
        record, token = call.parts.keys.create(tx, draft, by)
        return _made(record, token, tx)

    return call.write_here(effect)


@router.get("/v1/api-keys/{id}", dependencies=plain, responses=answers(ApiKey, API_KEY))
def get_api_key(call: Administers, id: str) -> Response:  # noqa: A002 - the path's word
    """A key, without its secret. Scope: admin."""
    with call.read_here() as tx:
        return Answer(key_answer(require_key(tx, _id(id)), tx)).response()


@router.delete(
    "/v1/api-keys/{id}",
    status_code=204,
    dependencies=plain,
    openapi_extra={"x-tickrail-scope": "admin"},
)
def revoke_api_key(call: Asks, id: str) -> Response:  # noqa: A002 - as above
    """Revoke a key; within two seconds no API process takes it.

    Scope: admin. A key needs no scope to revoke itself.
    """
    if call.principal.key_id != id:
        call.principal.demand("admin")

    def effect(tx: KeyTransaction) -> Answer:
        revoke_key(tx, _id(id))
        return Answer(None, 204)

    return call.write_here(effect)


@router.post(
    "/v1/api-keys/{id}/rotate",
    dependencies=plain,
    responses=answers(MadeApiKey, MADE_KEY, 201),
    openapi_extra=body(RotateApiKey, ROTATE_KEY, required=False),
)
def rotate_api_key(call: Administers, id: str) -> Response:  # noqa: A002 - as above
    """Make a new key in the place of one, with the same name, scopes and length of life.

    The old one stays valid for `grace`, a day unless told otherwise. Scope: admin.
    """
    grace, by = read_grace(call.document()), _maker(call)

    def effect(tx: KeyTransaction) -> Answer:
        record, token = call.parts.keys.rotate(tx, _id(id), grace, by)
        return _made(record, token, tx)

    return call.write_here(effect)


def _maker(call: Call) -> Maker:
    """Who makes a key here.

    The key of an operator who names a tenant is not to be seen in that tenant's transaction.
    """
    by = call.principal
    if by.kind == "token":
        return Maker(by.scopes, ends_at=by.ends_at)
    if by.operator and call.for_tenant:
        with call.parts.database.operator(call.caller) as tx:
            own = require_key(tx, by.key_id)
        return Maker(by.scopes, "", own.requests_per_second, own.expires_at)
    return Maker(by.scopes, by.key_id)


def key_answer(record: KeyRecord, tx: KeyTransaction) -> dict[str, Any]:
    """A key as the API answers it."""
    return {
        "id": record.id,
        "prefix": f"{PREFIX}_{record.id}",
        "name": record.name,
        "description": record.description,
        "scopes": list(record.scopes),
        "requests_per_second": record.requests_per_second,
        "state": record.state(tx.now),
        "created_at": instant_text(record.created_at),
        "created_by": record.created_by,
        **{
            name: None if at is None else instant_text(at)
            for name, at in (
                ("expires_at", record.expires_at),
                ("revoked_at", record.revoked_at),
                ("last_used_at", record.last_used_at),
            )
        },
        "replaced_by": record.replaced_by,
    }


def _made(record: KeyRecord, token: str, tx: KeyTransaction) -> Answer:
    document = {**key_answer(record, tx), "token": token}
    return Answer(document, 201, {"Location": f"/v1/api-keys/{record.id}"}, once=("token",))


def _read_id(text: str) -> str:
    """The id of a key in a cursor.

    Raises:
        ValueError: it is none.
    """
    if not ID.fullmatch(text):
        raise ValueError(text)
    return text


def _id(text: str) -> str:
    """An id that the database can compare."""
    return text.replace("\x00", "")
