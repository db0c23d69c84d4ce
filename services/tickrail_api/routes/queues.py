"""/v1/queues: what belongs to the installation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tickrail.store.engine import list_queues
from tickrail_api.call import Answer, Reads
from tickrail_api.openapi import answers, page
from tickrail_api.paging import PageParameters, listed, name_after
from tickrail_api.schemas.other import QUEUE, QueuePage
from tickrail_api.views import named_row

router = APIRouter(tags=["installation"])


@router.get("/v1/queues", responses=answers(QueuePage, page(QUEUE)))
def queues(call: Reads, query: Annotated[PageParameters, Query()]) -> Response:
    """The queues and the kinds of target that each serves. Scope: read."""
    after = name_after(query, ["queues"])
    with call.parts.database.installation() as tx:
        rows = list_queues(tx, after, query.limit + 1)
    items = rows[: query.limit]
    more = query.next(["queues"], [items[-1]["name"]]) if len(rows) > query.limit else None
    return Answer(listed([named_row(r) for r in items], more)).response()
