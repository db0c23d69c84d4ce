"""/v1/system: schedulers and who owns what, drains, workers. For operators' keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.durations import format_duration
from tickrail.core.errors import MalformedError
from tickrail.core.ids import Epoch, Partition, uuid7
from tickrail.core.policies import PRIORITIES
from tickrail.engine.members import MemberView, PartitionView
from tickrail.engine.presence import ABSENT_AFTER, FORGET_AFTER
from tickrail.store.audit import write_operator_audit
from tickrail.store.engine import list_partitions, read_generation, read_lag, read_overdue
from tickrail.store.workers import list_workers
from tickrail_api.call import Answer, Call, ChangesInstallation, Operates
from tickrail_api.openapi import answers, page
from tickrail_api.paging import PageParameters, listed, number_after
from tickrail_api.query import no_parameters
from tickrail_api.schemas.system import (
    DRAINED,
    LAG,
    MEMBERS,
    PARTITION,
    WORKER,
    Drained,
    Lag,
    MemberPage,
    PartitionPage,
    WorkerPage,
)
from tickrail_api.threads import Routes
from tickrail_api.views import named_row

router = Routes(tags=["installation"])
plain = [Depends(no_parameters)]


@router.get("/v1/system/members", dependencies=plain, responses=answers(MemberPage, MEMBERS))
def members(call: Operates) -> Response:
    """The schedulers that are present, and drained names of which none is.

    For operators' keys; scope: read. 503 while etcd does not answer.
    """
    views, ignored = call.parts.members.members()
    document = {**listed([_member(v) for v in views], None), "drains_ignored": ignored}
    return Answer(document).response()


@router.get("/v1/system/partitions", responses=answers(PartitionPage, page(PARTITION)))
def partitions(call: Operates, query: Annotated[PageParameters, Query()]) -> Response:
    """Who owns each partition, its epochs, and what is left of the lease.

    For operators' keys; scope: read. 503 while etcd does not answer.
    """
    after = number_after(query, ["partitions"], -1)
    with call.parts.database.installation() as tx:
        rows = list_partitions(tx, after, query.limit + 1)
        generation = read_generation(tx)
    items = rows[: query.limit]
    more = query.next(["partitions"], [items[-1]["partition"]]) if len(rows) > query.limit else None
    stored = {Partition(r["partition"]): Epoch(r["epoch"]) for r in items}
    views = call.parts.members.partitions(stored, generation)
    documents = [_partition(views[Partition(r["partition"])], r) for r in items]
    return Answer(listed(documents, more)).response()


@router.get("/v1/system/workers", dependencies=plain, responses=answers(WorkerPage, page(WORKER)))
def workers(call: Operates) -> Response:
    """The workers that are there: what each serves and how much it runs.

    One that dies is shown for up to a minute. For operators' keys; scope: read.
    """
    with call.parts.database.installation() as tx:
        rows = list_workers(tx, FORGET_AFTER)
        now = tx.now
    items = [{**named_row(r), "state": _worker_state(r, now - ABSENT_AFTER)} for r in rows]
    return Answer(listed(items, None)).response()


@router.get("/v1/system/lag", dependencies=plain, responses=answers(Lag, LAG))
def lag(call: Operates) -> Response:
    """How far behind planning, publishing and starting are, by queue and class.

    It counts what waits and runs, and so costs more the more that is: 100,000 launches take about a
    tenth of a second. For operators' keys; scope: read.
    """
    with call.parts.database.installation(operator=True) as tx:
        rows, overdue = read_lag(tx), read_overdue(tx)
    document = {
        "plan": _whole(overdue),
        "publish": _whole(max((r["oldest_due"] or 0 for r in rows), default=0)),
        "start": _whole(max((r["oldest_queued"] or 0 for r in rows), default=0)),
        **listed([_lag(r) for r in rows], None),
    }
    return Answer(document).response()


@router.post(
    "/v1/system/members/{member}/drain",
    status_code=202,
    dependencies=plain,
    responses=answers(Drained, DRAINED, 202),
)
def drain(call: ChangesInstallation, member: str) -> Response:
    """Drain a scheduler, named by its name or identity: it hands its partitions over at once.

    It owns nothing until the drain is ended, also after a restart under the same name. When every
    member is drained, drains are ignored. For operators' keys; scope: admin.
    """
    _no_document(call)
    parts = call.parts
    name = parts.members.find(member)
    with parts.database.installation() as tx:
        _audit(call, tx, "member.drain", name)
        views, ignored = parts.members.drain(name, tx.now, call.caller.actor)
    document = {"name": name, "drains_ignored": ignored, "items": [_member(v) for v in views]}
    return Answer(document, 202).response()


@router.delete("/v1/system/members/{member}/drain", status_code=204, dependencies=plain)
def undrain(call: ChangesInstallation, member: str) -> Response:
    """End the drain of a scheduler: it gets its partitions back. For operators' keys; scope: admin.

    The name may be one of which no member is present.
    """
    parts = call.parts
    name = parts.members.find(member)
    with parts.database.installation() as tx:
        _audit(call, tx, "member.undrain", name)
        parts.members.undrain(name)
    return Answer(None, 204).response()


def _worker_state(row: Mapping[str, Any], since: datetime) -> str:
    if row["seen_at"] < since:
        return "absent"
    return "draining" if row["draining"] else "active"


def _audit(call: Call, tx: Any, action: str, name: str) -> None:  # noqa: ANN401 - a transaction of the store
    """Record it; committed when it has been done."""
    entry = uuid7(call.parts.clock)
    drained = action == "member.drain"
    was, is_now = {"drained": not drained}, {"drained": drained}
    write_operator_audit(tx, call.caller, entry, action, f"member:{name}", is_now, before=was)


def _no_document(call: Call) -> None:
    if call.document() not in (None, {}):
        raise MalformedError("A drain takes no document: leave the body empty.")


def _member(view: MemberView) -> dict[str, Any]:
    drained = view.drain
    return {
        "name": view.name,
        "identity": view.identity,
        "state": view.state.value,
        "weight": view.weight,
        "partitions": view.partitions,
        "since": instant_text(view.since),
        "lease_remaining": _seconds(view.lease_remaining),
        "drain": None
        if drained is None
        else {"since": instant_text(drained.since), "by": drained.by},
    }


def _partition(view: PartitionView, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "partition": view.partition,
        "state": view.state.value,
        "owner": None if view.owner is None else {"name": view.name, "identity": view.owner},
        "epoch": view.stored,
        "claimed_epoch": view.claimed,
        "lease_remaining": _seconds(view.lease_remaining),
        "taken_by": row["owner"],
        "taken_at": instant_text(row["taken_at"]),
        "tzdata": row["tzdata"],
    }


def _lag(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "queue": row["queue"],
        "priority": PRIORITIES[row["priority"]].value,
        **{name: row[name] for name in ("due", "queued", "running")},
        **{name: _seconds(row[name]) for name in ("oldest_due", "oldest_queued")},
    }


def _whole(seconds: float) -> str:
    return format_duration(timedelta(seconds=int(seconds)))


def _seconds(left: float | None) -> str | None:
    return None if left is None else format_duration(timedelta(seconds=int(left)))
