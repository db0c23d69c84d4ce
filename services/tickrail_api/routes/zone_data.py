"""/v1/system/tzdata: the zone data by which next runs are computed, and what a change moved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.schedule import TZDATA_VERSION
from tickrail.store.zone_changes import list_tzdata_changes, tzdata_versions
from tickrail_api.call import Answer, Operates
from tickrail_api.openapi import answers
from tickrail_api.paging import PageParameters, bad_parameter, listed, read_instant, uuid_of
from tickrail_api.schemas.other import ZONE_DATA, ZoneData
from tickrail_api.threads import Routes

router = Routes(tags=["installation"])
_SCOPE = ("tzdata",)


@router.get("/v1/system/tzdata", responses=answers(ZoneData, ZONE_DATA))
def zone_data(call: Operates, query: Annotated[PageParameters, Query()]) -> Response:
    """The zone data in use, and next runs that a change of it moved, the newest first.

    For operators' keys; scope: read.
    """
    after = _position(query)
    with call.parts.database.installation() as tx:
        counts = tzdata_versions(tx)
        rows = list_tzdata_changes(tx, after, query.limit + 1)
    items = rows[: query.limit]
    more = None
    if len(rows) > query.limit:
        last = items[-1]
        more = query.next(_SCOPE, [last["changed_at"], str(last["job_id"])])
    document = {
        "version": TZDATA_VERSION,
        "partitions": {version or "unknown": count for version, count in counts.items()},
        **listed([_change(r) for r in items], more),
    }
    return Answer(document).response()


def _change(row: Mapping[str, Any]) -> dict[str, Any]:
    before, after = row["before_at"], row["after_at"]
    return {
        "changed_at": instant_text(row["changed_at"]),
        "job": {"id": str(row["job_id"]), "name": row["job_name"]},
        "tenant": row["tenant"],
        "time_zones": row["zones"],
        "versions": {"before": row["from_version"] or "unknown", "after": row["to_version"]},
        "next_run_at": {"before": instant_text(before), "after": instant_text(after)},
    }


def _position(query: PageParameters) -> tuple[datetime, UUID] | None:
    found = query.position(_SCOPE, 2)
    if found is None:
        return None
    try:
        return read_instant(str(found[0])), uuid_of(str(found[1]))
    except ValueError:
        raise bad_parameter("cursor", "is not one of this list", "next_cursor") from None
