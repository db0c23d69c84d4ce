"""/v1/tenants: what operators set of each tenant. For operators' keys."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.errors import PreconditionFailedError
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.queues import (
    TENANT_ANSWERED,
    TenantDraft,
    read_only_problems,
    read_tenant,
)
from tickrail.engine.jobs import merge
from tickrail.executors.egress_policy import egress_problems
from tickrail.store.audit import write_operator_audit
from tickrail.store.queues import (
    change_tenant,
    find_limits,
    find_tenant_row,
    limits_of,
    tenant_page,
    tenant_scope,
    wake,
)
from tickrail.store.tenancy import BaseTransaction
from tickrail_api.call import Answer, ChangesInstallation, Operates
from tickrail_api.openapi import answers, merge_patch, page
from tickrail_api.paging import PageParameters, listed, name_after
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.queue import PATCH_TENANT, TENANT, Tenant, TenantPage

router = APIRouter(tags=["installation"])
_SCOPE = ["tenants"]


@router.get("/v1/tenants", responses=answers(TenantPage, page(TENANT)))
def list_tenants(call: Operates, query: Annotated[PageParameters, Query()]) -> Response:
    """The tenants by name. For operators' keys; scope: read."""
    after = name_after(query, _SCOPE)
    with call.parts.database.installation(operator=True) as tx:
        rows = tenant_page(tx, after, query.limit + 1)
        items = [_document(tx, row) for row in rows[: query.limit]]
    more = query.next(_SCOPE, [items[-1]["name"]]) if len(rows) > query.limit else None
    return Answer(listed(items, more)).response()


@router.get("/v1/tenants/{tenant}", dependencies=plain, responses=answers(Tenant, TENANT))
def get_tenant(call: Operates, tenant: str) -> Response:
    """A tenant, by id or name. For operators' keys; scope: read."""
    found = call.parts.authenticator.tenant_named(tenant)
    with call.parts.database.installation(operator=True) as tx:
        return _answer(tx, found).response()


@router.patch(
    "/v1/tenants/{tenant}",
    dependencies=plain,
    responses=answers(Tenant, TENANT),
    openapi_extra=merge_patch(PATCH_TENANT, of="Tenant"),
)
def patch_tenant(call: ChangesInstallation, tenant: str) -> Response:
    """Set a tenant's share of turns, how much of it may run, and what its targets may reach.

    For operators' keys; scope: admin.
    """
    wanted, document = call.precondition(), call.document()
    found = call.parts.authenticator.tenant_named(tenant)
    with call.parts.database.installation(operator=True) as tx:
        row = find_tenant_row(tx, found, lock=True)
        if wanted.exists is False or (
            wanted.versions is not None and row.version not in wanted.versions
        ):
            raise PreconditionFailedError(f"The tenant is at version {row.version} now.")
        before = _draft(tx, row).document()
        whole = merge(before, document) if isinstance(document, dict) else document
        is_now = {k: v for k, v in _document(tx, row).items() if k in TENANT_ANSWERED}
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


def _answer(tx: BaseTransaction, tenant: TenantId) -> Answer:
    row = find_tenant_row(tx, tenant)
    return Answer(_document(tx, row), headers={"ETag": f'"{row.version}"'})


def _draft(tx: BaseTransaction, row: Any) -> TenantDraft:  # noqa: ANN401 - a row
    scope = tenant_scope(TenantId(row.id))
    most = limits_of(find_limits(tx, [scope]).get(scope)).max_running
    return TenantDraft(row.weight, most, row.egress, tuple(row.kafka_topics))


def _document(tx: BaseTransaction, row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row
    return {
        "id": str(row.id),
        "name": row.name,
        "state": row.state,
        **_draft(tx, row).document(),
        "version": row.version,
        "created_at": instant_text(row.created_at),
    }
