"""/v1/secrets: values that targets name and nobody reads back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.ports_api import Transaction
from tickrail.core.secrets import SecretRecord
from tickrail.engine.secrets import delete_secret, put_secret, read_secret, require_secret
from tickrail_api.call import Administers, Answer
from tickrail_api.openapi import answers, body, page
from tickrail_api.paging import PageParameters, listed, name_after
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.secret import NEW_SECRET, SECRET, NewSecret, Secret, SecretPage
from tickrail_api.threads import Routes

router = Routes(tags=["secrets"])
_SCOPE = ["secrets"]


@router.get("/v1/secrets", responses=answers(SecretPage, page(SECRET)))
def list_secrets(call: Administers, query: Annotated[PageParameters, Query()]) -> Response:
    """List secrets by name, without their values. Scope: admin."""
    after = name_after(query, _SCOPE)
    with call.read() as tx:
        rows = tx.secrets.page(after, query.limit + 1)
    items = rows[: query.limit]
    more = query.next(_SCOPE, [items[-1].name]) if len(rows) > query.limit else None
    return Answer(listed([secret_answer(r) for r in items], more)).response()


@router.get("/v1/secrets/{name}", dependencies=plain, responses=answers(Secret, SECRET))
def get_secret(call: Administers, name: str) -> Response:
    """Whether a secret is there, and since when it has its value. Scope: admin."""
    with call.read() as tx:
        found = require_secret(tx, name)
    return Answer(secret_answer(found)).response()


@router.put(
    "/v1/secrets/{name}",
    dependencies=plain,
    responses=answers(Secret, SECRET, 200, 201),
    openapi_extra=body(NewSecret, NEW_SECRET),
)
def put_secret_value(call: Administers, name: str) -> Response:
    """Keep a value under a name, in place of what was there. Scope: admin.

    A target names it as `{"secret": "<name>"}`. Runs that begin a few seconds later use the new
    value.
    """
    wanted = call.precondition()
    value = read_secret(name, call.document())

    def effect(tx: Transaction) -> Answer:
        record, created = put_secret(tx, name, value, wanted)
        headers = {"Location": f"/v1/secrets/{name}"} if created else {}
        return Answer(secret_answer(record), 201 if created else 200, headers)

    return call.write(effect)


@router.delete("/v1/secrets/{name}", status_code=204, dependencies=plain)
def delete_secret_value(call: Administers, name: str) -> Response:
    """Delete a secret; 409 with their names while jobs use it. Scope: admin."""

    def effect(tx: Transaction) -> Answer:
        delete_secret(tx, name)
        return Answer(None, 204)

    return call.write(effect)


def secret_answer(record: SecretRecord) -> dict[str, Any]:
    """A secret as the API answers it."""
    return {"name": record.name, "updated_at": instant_text(record.updated_at)}
