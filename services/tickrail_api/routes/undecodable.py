"""/v1/dead-letters/{topic}/{partition}/{offset}: messages that no worker could read.

They belong to no tenant: operators' keys see them, and purge them at once.
"""

from __future__ import annotations

from enum import StrEnum

from starlette.responses import Response

from tickrail.core.definition import NAME
from tickrail.core.documents import Reader
from tickrail.core.errors import ForbiddenError, NotFoundError
from tickrail.core.ids import uuid7
from tickrail.core.records import PageRequest
from tickrail.engine.operations import texts
from tickrail.store.audit import write_operator_audit
from tickrail.store.letters import (
    MessageFilter,
    count_undecodable,
    find_undecodable,
    list_undecodable,
    purge_undecodable,
)
from tickrail_api.call import Answer, Call, Operates
from tickrail_api.letter_views import UNDECODABLE, inspected_message, message_document
from tickrail_api.openapi import answers
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.dead_letter import INSPECTED_MESSAGE, InspectedMessage
from tickrail_api.threads import Routes

router = Routes(tags=["dead letters"])
_SAMPLE = 20
_MOST_IDS = 100
_MOST_PURGED = 100_000
"""Messages that one call deletes at most."""


class _Kind(StrEnum):
    UNDECODABLE = UNDECODABLE


@router.get(
    "/v1/dead-letters/{topic}/{partition}/{offset}",
    dependencies=plain,
    responses=answers(InspectedMessage, INSPECTED_MESSAGE),
)
def get_undecodable(call: Operates, topic: str, partition: str, offset: str) -> Response:
    """Inspect an undecodable message. For operators' keys; scope: read."""
    with call.parts.database.installation(operator=True) as tx:
        row = find_undecodable(tx, f"{topic}/{partition}/{offset}".replace("\x00", ""))
    if row is None:
        raise NotFoundError(f"There is no undecodable message {topic}/{partition}/{offset}."[:300])
    return Answer(inspected_message(row)).response()


def purge_messages(call: Call, document: object) -> Response:
    """Delete messages of a filter, or only say which (`dry_run`).

    Raises:
        ForbiddenError: a tenant's key asks.
        InvalidInputError: the document is not valid.
    """
    if not call.principal.operator:
        raise ForbiddenError("Undecodable messages belong to no tenant: operators' keys see them.")
    reader = Reader(document)
    child = reader.child("filter")
    child.choice("kind", _Kind.UNDECODABLE)
    ids = texts(child, "id", _MOST_IDS)
    queue = child.text("queue", pattern=NAME, expected="the name of a queue")
    where = MessageFilter(ids, queue, child.instant("from"), child.instant("to"))
    child.without_empty()
    reader.absorb(child)
    most = reader.whole("max_count", _MOST_PURGED, low=1, high=_MOST_PURGED)
    dry_run = reader.flag("dry_run", default=False)
    reader.finish("purge")
    with call.parts.database.installation(operator=True) as tx:
        total = count_undecodable(tx, where)
        if dry_run:
            rows = list_undecodable(tx, PageRequest("at", True, _SAMPLE - 1), where)
            items = [message_document(row) for row in rows]
            return Answer({"total": total, "purged": 0, "items": items}).response()
        purged = purge_undecodable(tx, where, most)
        after = {"count": purged, "filter": reader.raw("filter")}
        write_operator_audit(
            tx, call.caller, uuid7(call.parts.clock), "undecodable.purge", "dead_letters", after
        )
    return Answer({"total": total, "purged": purged, "items": []}).response()
