"""/v1/tenants: who there is, what operators set of each, and which go on. For operators' keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.errors import (
    ConflictError,
    NameTakenError,
    NotFoundError,
    PreconditionFailedError,
)
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.queues import (
    TENANT_ANSWERED,
    TenantDraft,
    read_new_tenant,
    read_only_problems,
    read_reason,
    read_tenant,
)
from tickrail.core.quotas import Amounts
from tickrail.engine.jobs import merge
from tickrail.executors.egress_policy import egress_problems
from tickrail.store.audit import write_operator_audit
from tickrail.store.operator import OperatorTransaction
from tickrail.store.queues import (
    change_tenant,
    find_limits,
    find_tenant_row,
    limits_of,
    tenant_scope,
    wake,
)
from tickrail.store.quotas import read_amounts_of
from tickrail.store.tenancy import BaseTransaction
from tickrail.store.tenants import (
    ACTIVE,
    DELETED,
    SUSPENDED,
    create_tenant,
    free_name,
    set_tenant_state,
    tenant_names,
    tenant_row,
)
from tickrail_api.call import Answer, Call, ChangesInstallation, Operates
from tickrail_api.openapi import answers, body, merge_patch, page
from tickrail_api.paging import PageParameters, listed, name_after
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.queue import (
    NEW_TENANT,
    PATCH_TENANT,
    SUSPEND,
    TENANT,
    NewTenant,
    Tenant,
    TenantPage,
    TenantReason,
)
from tickrail_api.threads import Routes

router = Routes(tags=["installation"])
_Quotas = Mapping[TenantId, Amounts]


class TenantParameters(PageParameters):
    """The list of tenants."""

    state: Annotated[
        Literal["active", "suspended", "deleted"] | None, Field(description="Only tenants in it.")
    ] = None


@router.get("/v1/tenants", responses=answers(TenantPage, page(TENANT)))
def list_tenants(call: Operates, query: Annotated[TenantParameters, Query()]) -> Response:
    """The tenants by name. For operators' keys; scope: read."""
    scope = ["tenants", query.state]
    after = name_after(query, scope)
    with call.parts.database.installation(operator=True) as tx:
        rows = tenant_names(tx, query.state, after, query.limit + 1)
        quotas = read_amounts_of(tx, [TenantId(row.id) for row in rows])
        items = [_document(tx, row, quotas) for row in rows[: query.limit]]
    more = query.next(scope, [items[-1]["name"]]) if len(rows) > query.limit else None
    return Answer(listed(items, more)).response()


@router.post(
    "/v1/tenants",
    dependencies=plain,
    responses=answers(Tenant, TENANT, 201),
    openapi_extra=body(NewTenant, NEW_TENANT),
)
def create_tenant_row(call: ChangesInstallation) -> Response:
    """Make a tenant. For operators' keys; scope: admin.

    Its first key is made by `POST /v1/api-keys` with `Tickrail-Tenant`. A deleted tenant of the
    name gives it up, and is called `<name>.deleted-<part of its id>` from then on.
    """
    name, draft = read_new_tenant(call.document(), egress_problems)

    def effect(tx: OperatorTransaction) -> Answer:
        tenant = TenantId(uuid7(call.parts.clock))
        if (former := free_name(tx.base, name)) is not None:
            before, now = {"name": name}, {"name": former.name}
            tx.audit("tenant.change", f"tenant:{former.id}", before, now)
        if not create_tenant(tx.base, tenant, name, draft):
            raise NameTakenError(f"There is a tenant {name!r} already.")
        after = {"name": name, **draft.document()}
        tx.audit("tenant.create", f"tenant:{tenant}", None, after)
        answer = _answer(tx.base, tenant)
        headers = {**answer.headers, "Location": f"/v1/tenants/{tenant}"}
        return Answer(answer.document, 201, headers)

    return call.write_installation(effect)


@router.get("/v1/tenants/{tenant}", dependencies=plain, responses=answers(Tenant, TENANT))
def get_tenant(call: Operates, tenant: str) -> Response:
    """A tenant, by id or name. For operators' keys; scope: read."""
    with call.parts.database.installation(operator=True) as tx:
        return _answer(tx, TenantId(_require(tx, tenant).id)).response()


@router.patch(
    "/v1/tenants/{tenant}",
    dependencies=plain,
    responses=answers(Tenant, TENANT),
    openapi_extra=merge_patch(PATCH_TENANT, of="Tenant"),
)
def patch_tenant(call: ChangesInstallation, tenant: str) -> Response:
    """Set a tenant's share of turns, its quotas, and what its targets may reach.

    For operators' keys; scope: admin.
    """
    wanted, document = call.precondition(), call.document()
    with call.parts.database.installation(operator=True) as tx:
        row = _require(tx, tenant, lock=True)
        found = TenantId(row.id)
        if wanted.exists is False or (
            wanted.versions is not None and row.version not in wanted.versions
        ):
            raise PreconditionFailedError(f"The tenant is at version {row.version} now.")
        quotas = _quotas(tx, row)
        before = _draft(tx, row, quotas).document()
        whole = merge(before, document) if isinstance(document, dict) else document
        is_now = {k: v for k, v in _document(tx, row, quotas).items() if k in TENANT_ANSWERED}
        draft = read_tenant(whole, egress_problems, read_only_problems(document, is_now))
        if draft.document() != before:
            change_tenant(tx, found, draft)
            entry = uuid7(call.parts.clock)
            write_operator_audit(
                tx, call.caller, entry, "tenant.change", f"tenant:{found}", draft.document(),
                before=before,
            )  # fmt: skip
            wake(tx)
        return _answer(tx, found).response()


@router.delete("/v1/tenants/{tenant}", status_code=204, dependencies=plain)
def delete_tenant(call: ChangesInstallation, tenant: str) -> Response:
    """Delete a tenant: its keys are taken no more, nothing of it starts, what runs ends.

    What has not begun is cancelled within seconds. All else of it is kept, and `resume` brings it
    back; its name is its own until a new tenant is made with it. For operators' keys; scope: admin.
    """
    _move(call, tenant, DELETED, "", "tenant.delete")
    return Answer(None, 204).response()


@router.post(
    "/v1/tenants/{tenant}/suspend",
    dependencies=plain,
    responses=answers(Tenant, TENANT | {"state": "suspended"}),
    openapi_extra=body(TenantReason, SUSPEND, required=False),
)
def suspend_tenant(call: ChangesInstallation, tenant: str) -> Response:
    """Let nothing more of a tenant start and refuse its keys; what runs ends.

    Its slots meanwhile are skipped as `paused`; launches that were made before wait. For
    operators' keys; scope: admin.
    """
    return _move(call, tenant, SUSPENDED, read_reason(call.document()), "tenant.suspend")


@router.post(
    "/v1/tenants/{tenant}/resume",
    dependencies=plain,
    responses=answers(Tenant, TENANT),
    openapi_extra=body(TenantReason, {"reason": "the bill is paid"}, required=False),
)
def resume_tenant(call: ChangesInstallation, tenant: str) -> Response:
    """Let a tenant go on that was suspended or deleted. For operators' keys; scope: admin."""
    return _move(call, tenant, ACTIVE, read_reason(call.document()), "tenant.resume")


def _move(call: Call, named: str, state: str, reason: str, action: str) -> Response:
    def effect(tx: OperatorTransaction) -> Answer:
        row = _require(tx.base, named, lock=True)
        if state == SUSPENDED and row.state == DELETED:
            raise ConflictError("The tenant is deleted; resume it first.")
        if (row.state, row.state_reason) != (state, reason):
            set_tenant_state(tx.base, row, state, reason)
            before = {"state": row.state, "reason": row.state_reason}
            tx.audit(action, f"tenant:{row.id}", before, {"state": state, "reason": reason})
        return _answer(tx.base, TenantId(row.id))

    return call.write_installation(effect)


def _require(tx: BaseTransaction, named: str, *, lock: bool = False) -> Any:  # noqa: ANN401 - a row
    found = tenant_row(tx, named.replace("\x00", ""), lock=lock)
    if found is None:
        raise NotFoundError(f"There is no tenant {named[:128]!r}.")
    return found


def _answer(tx: BaseTransaction, tenant: TenantId) -> Answer:
    row = find_tenant_row(tx, tenant)
    return Answer(_document(tx, row, _quotas(tx, row)), headers={"ETag": f'"{row.version}"'})


def _quotas(tx: BaseTransaction, row: Any) -> _Quotas:  # noqa: ANN401 - a row
    return read_amounts_of(tx, [TenantId(row.id)])


def _draft(tx: BaseTransaction, row: Any, quotas: _Quotas) -> TenantDraft:  # noqa: ANN401 - a row
    scope = tenant_scope(TenantId(row.id))
    most = limits_of(find_limits(tx, [scope]).get(scope)).max_running
    own = quotas[TenantId(row.id)]
    return TenantDraft(row.weight, most, row.egress, tuple(row.kafka_topics), own)


def _document(tx: BaseTransaction, row: Any, quotas: _Quotas) -> dict[str, Any]:  # noqa: ANN401 - a row
    return {
        "id": str(row.id),
        "name": row.name,
        "state": row.state,
        "state_reason": row.state_reason,
        "state_at": None if row.state_at is None else instant_text(row.state_at),
        **_draft(tx, row, quotas).document(),
        "version": row.version,
        "created_at": instant_text(row.created_at),
    }
