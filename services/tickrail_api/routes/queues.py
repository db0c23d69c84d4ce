"""/v1/queues: what belongs to the installation, and each tenant's part of it.

An operator's key changes a queue for everybody; a tenant's key, or an operator's that names a
tenant, the tenant's own limits and pause in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from tickrail.core.errors import PreconditionFailedError as NotAsDemandedError
from tickrail.core.ids import uuid7
from tickrail.core.limits import Scope
from tickrail.core.queues import (
    ANSWERED,
    read_limits,
    read_only_problems,
    read_queue,
    read_reason,
)
from tickrail.core.targets import TARGET_KINDS
from tickrail.engine.job_rules import Precondition
from tickrail.engine.jobs import merge
from tickrail.store.audit import write_operator_audit
from tickrail.store.engine import ApiTransaction
from tickrail.store.queues import (
    delete_queue,
    depth,
    depth_for_everybody,
    find_limits,
    find_queue,
    limits_of,
    lock_part,
    pause_limit,
    pause_queue,
    put_queue,
    queue_is_used,
    queue_page,
    queue_scope,
    set_limits,
    wake,
)
from tickrail.store.tenancy import BaseTransaction
from tickrail_api.call import Administers, Answer, Call, ChangesInstallation, Reads
from tickrail_api.openapi import answers, body, merge_patch, page
from tickrail_api.paging import PageParameters, listed, name_after
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.queue import (
    NEW_QUEUE,
    PATCH_LIMITS,
    PAUSE_QUEUE,
    QUEUE,
    NewQueue,
    PauseQueue,
    Queue,
    QueuePage,
)
from tickrail_api.threads import Routes

router = Routes(tags=["installation"])
_SCOPE = ["queues"]
_MOST = 500


@router.get("/v1/queues", responses=answers(QueuePage, page(QUEUE | {"depth": None})))
def queues(call: Reads, query: Annotated[PageParameters, Query()]) -> Response:
    """The queues, their limits, and the tenant's own part of each. Scope: read."""
    after = name_after(query, _SCOPE)
    if call.for_tenant:
        with call.read() as tx:
            rows = queue_page(tx.base, after, query.limit + 1)
            items = [_document(tx.base, row, call) for row in rows[: query.limit]]
    else:
        with call.parts.database.installation(operator=True) as base:
            rows = queue_page(base, after, query.limit + 1)
            items = [_document(base, row, call) for row in rows[: query.limit]]
    more = query.next(_SCOPE, [items[-1]["name"]]) if len(rows) > query.limit else None
    return Answer(listed(items, more)).response()


@router.get("/v1/queues/{name}", dependencies=plain, responses=answers(Queue, QUEUE))
def get_queue(call: Reads, name: str) -> Response:
    """A queue, the tenant's own part of it, and how much waits there. Scope: read."""
    if call.for_tenant:
        with call.read() as tx:
            return _answer(tx.base, name, call).response()
    with call.parts.database.installation(operator=True) as base:
        return _answer(base, name, call).response()


@router.put(
    "/v1/queues/{name}",
    dependencies=plain,
    responses=answers(Queue, QUEUE, 200, 201),
    openapi_extra=body(NewQueue, NEW_QUEUE),
)
def put(call: ChangesInstallation, name: str) -> Response:
    """Create or replace a queue: what it serves and its limits for everybody.

    For operators' keys; scope: admin. Schedulers make the topics of a new queue when its first
    launch is due, within some seconds; a worker reads the queues that it is started with.
    """
    _for_everybody(call)
    wanted = call.precondition()
    draft = read_queue(name, call.document(), TARGET_KINDS)
    with call.parts.database.installation(operator=True) as tx:
        found = find_queue(tx, name, lock=True)
        _check(None if found is None else found.version, wanted)
        is_now = {"name": name, "paused": False, "paused_reason": ""}
        if found is not None:
            is_now = _read_only(tx, found, call)
        if problems := read_only_problems(call.document(), is_now):
            raise InvalidInputError("The queue is not valid.", problems)
        before = None if found is None else _plain(tx, found)
        version = 1 if found is None else found.version + 1
        if before != draft.document():
            if not put_queue(tx, name, draft, version):
                raise ConflictError("The queue was made at this moment by another; try again.")
            _audit(call, tx, "queue.put", name, draft.document(), before)
            wake(tx)
        answer = _answer(tx, name, call, created=found is None)
    return answer.response()


@router.patch(
    "/v1/queues/{name}",
    dependencies=plain,
    responses=answers(Queue, QUEUE),
    openapi_extra=merge_patch(PATCH_LIMITS, of="NewQueue"),
)
def patch(call: Administers, name: str) -> Response:
    """Change a queue for everybody, or the tenant's own limits in it. Scope: admin.

    A tenant sets `max_running` and `rate` of its own launches; operators all that PUT takes.
    """
    wanted, document = call.precondition(), call.document()
    if not call.for_tenant:
        with call.parts.database.installation(operator=True) as base:
            row = _require(base, name, lock=True)
            _check(row.version, wanted)
            before = _plain(base, row)
            problems = read_only_problems(document, _read_only(base, row, call))
            draft = read_queue(name, _merged(before, document), TARGET_KINDS, problems)
            if draft.document() != before:
                put_queue(base, name, draft, row.version + 1)
                _audit(call, base, "queue.change", name, draft.document(), before)
                wake(base)
            return _answer(base, name, call).response()

    def effect(tx: ApiTransaction) -> Answer:
        row = _require(tx.base, name)
        scope = queue_scope(name, tx.tenant)
        lock_part(tx.base, scope)
        mine = find_limits(tx.base, [scope]).get(scope)
        _check(1 if mine is None else mine.version, wanted)
        old = limits_of(mine).document()
        problems = read_only_problems(document, _read_only(tx.base, row, call, "kinds"))
        new = read_limits(_merged(old, document), problems)
        if new.document() != old:
            set_limits(tx.base, scope, new)
            tx.audit("queue.limits", f"queue:{name}", old, new.document())
            tx.wake_schedulers()
        return _answer(tx.base, name, call)

    return call.write(effect)


@router.delete("/v1/queues/{name}", status_code=204, dependencies=plain)
def delete(call: ChangesInstallation, name: str) -> Response:
    """Delete a queue that no job and no open launch is in; 409 otherwise.

    For operators' keys; scope: admin.
    """
    _for_everybody(call)
    wanted = call.precondition()
    with call.parts.database.installation(operator=True) as tx:
        found = find_queue(tx, name, lock=True)
        if found is not None:
            _check(found.version, wanted)
            if queue_is_used(tx, name):
                raise ConflictError(
                    f"Jobs or open launches are in the queue {name}; move or delete the jobs first."
                )
            before = _plain(tx, found)
            delete_queue(tx, name)
            _audit(call, tx, "queue.delete", name, None, before)
    return Answer(None, 204).response()


@router.post(
    "/v1/queues/{name}/pause",
    dependencies=plain,
    responses=answers(Queue, QUEUE | {"paused": True}),
    openapi_extra=body(PauseQueue, PAUSE_QUEUE, required=False),
)
def pause(call: Administers, name: str) -> Response:
    """Start nothing more of a queue: for everybody, or of the tenant. Scope: admin.

    What runs goes on; what is due waits.
    """
    return _set_paused(call, name, paused=True, reason=read_reason(call.document()))


@router.post("/v1/queues/{name}/resume", dependencies=plain, responses=answers(Queue, QUEUE))
def resume(call: Administers, name: str) -> Response:
    """Let a paused queue go on: for everybody, or the tenant's part. Scope: admin."""
    if call.document() not in (None, {}):
        read_reason({"document": None})
    return _set_paused(call, name, paused=False, reason="")


def _set_paused(call: Call, name: str, *, paused: bool, reason: str) -> Response:
    action = "queue.pause" if paused else "queue.resume"
    after = {"paused": paused, "reason": reason}
    if not call.for_tenant:
        with call.parts.database.installation(operator=True) as base:
            row = _require(base, name, lock=True)
            if (row.paused, row.paused_reason) != (paused, reason):
                pause_queue(base, name, paused=paused, reason=reason)
                before = {"paused": row.paused, "reason": row.paused_reason}
                _audit(call, base, action, name, after, before)
                wake(base)
            return _answer(base, name, call).response()

    def effect(tx: ApiTransaction) -> Answer:
        _require(tx.base, name)
        scope = queue_scope(name, tx.tenant)
        lock_part(tx.base, scope)
        mine = find_limits(tx.base, [scope]).get(scope)
        old = (False, "") if mine is None else (mine.paused, mine.paused_reason)
        if old != (paused, reason):
            pause_limit(tx.base, scope, paused=paused, reason=reason)
            tx.audit(action, f"queue:{name}", {"paused": old[0], "reason": old[1]}, after)
            tx.wake_schedulers()
        return _answer(tx.base, name, call)

    return call.write(effect)


def _for_everybody(call: Call) -> None:
    if call.for_tenant:
        raise ForbiddenError("Queues belong to the installation: leave Tickrail-Tenant out.")


def _require(tx: BaseTransaction, name: str, *, lock: bool = False) -> Any:  # noqa: ANN401 - a row
    found = find_queue(tx, name.replace("\x00", ""), lock=lock)
    if found is None:
        raise NotFoundError(f"There is no queue {name[:128]!r}.")
    return found


def _check(version: int | None, wanted: Precondition) -> None:
    if wanted.exists is False and version is not None:
        raise NotAsDemandedError("There is a queue of this name already.")
    if wanted.exists and version is None:
        raise NotAsDemandedError("There is no queue of this name.")
    if wanted.versions is not None and version not in wanted.versions:
        raise NotAsDemandedError(f"It is at version {version} now.")


def _merged(before: Mapping[str, Any], patch: object) -> object:
    return merge(before, patch) if isinstance(patch, dict) else patch


def _plain(tx: BaseTransaction, row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row
    """What PUT takes of a queue, as it is."""
    scope = queue_scope(row.name)
    shared = limits_of(find_limits(tx, [scope]).get(scope))
    return {"kinds": sorted(row.kinds), **shared.document()}


def _answer(tx: BaseTransaction, name: str, call: Call, *, created: bool = False) -> Answer:
    document = _document(tx, _require(tx, name), call)
    count: Callable[..., Mapping[str, int]] = depth if call.for_tenant else depth_for_everybody
    document["depth"] = count(tx, document["name"])
    part = document["tenant"] if call.for_tenant else document
    headers = {"ETag": f'"{part["version"]}"'}
    if created:
        headers["Location"] = f"/v1/queues/{name}"
    return Answer(document, 201 if created else 200, headers)


def _document(tx: BaseTransaction, row: Any, call: Call) -> dict[str, Any]:  # noqa: ANN401 - a row
    everybody = queue_scope(row.name)
    scopes: list[Scope] = [everybody]
    if call.for_tenant:
        scopes.append(queue_scope(row.name, call.tenant))
    found = find_limits(tx, scopes)
    mine = found.get(scopes[-1])
    return {
        "name": row.name,
        "kinds": sorted(row.kinds),
        **limits_of(found.get(everybody)).document(),
        "paused": row.paused,
        "paused_reason": row.paused_reason,
        "version": row.version,
        "created_at": instant_text(row.created_at),
        "tenant": None
        if not call.for_tenant
        else {
            **limits_of(mine).document(),
            "paused": mine is not None and mine.paused,
            "paused_reason": "" if mine is None else mine.paused_reason,
            "version": 1 if mine is None else mine.version,
        },
        "depth": None,
    }


def _read_only(tx: BaseTransaction, row: Any, call: Call, *more: str) -> dict[str, Any]:  # noqa: ANN401 - a row
    """What an answer says of a queue and a request cannot set."""
    return {k: v for k, v in _document(tx, row, call).items() if k in ANSWERED or k in more}


def _audit(
    call: Call,
    tx: BaseTransaction,
    action: str,
    name: str,
    after: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
) -> None:
    entry = uuid7(call.parts.clock)
    write_operator_audit(tx, call.caller, entry, action, f"queue:{name}", after, before=before)
