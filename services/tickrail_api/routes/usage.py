"""/v1/quotas and /v1/usage: what a tenant may have, and what it uses of that."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from tickrail.core.definition import instant_text
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.limits import INSTALLATION
from tickrail.core.ports_api import Transaction
from tickrail.core.quota_notices import read_notify
from tickrail.core.quotas import (
    WINDOWS,
    Amounts,
    Quota,
    Quotas,
    amounts_document,
    or_unlimited,
    quotas_of,
    read_amounts,
)
from tickrail.engine.jobs import merge
from tickrail.engine.quota_notices import notify_document, set_notify
from tickrail.store.engine import ApiTransaction
from tickrail.store.operator import OperatorTransaction
from tickrail.store.quotas import lock_quotas, read_amounts_of, write_amounts
from tickrail_api.call import Administers, Answer, ChangesInstallation, Reads
from tickrail_api.openapi import answers, body, merge_patch
from tickrail_api.routes.jobs import plain
from tickrail_api.schemas.usage import (
    NOTIFY,
    PATCH_QUOTAS,
    QUOTAS,
    USAGE,
    QuotaNotify,
    Usage,
)
from tickrail_api.schemas.usage import Quotas as QuotasDocument
from tickrail_api.threads import Routes

router = Routes(tags=["quotas"])


@router.get("/v1/quotas", dependencies=plain, responses=answers(QuotasDocument, QUOTAS))
def quotas(call: Reads) -> Response:
    """What the tenant may have; of an operator who names none, what everybody may. Scope: read."""
    if not call.for_tenant:
        with call.parts.database.operator(call.caller) as tx:
            return Answer(_document(quotas_of({}, _shared(tx)), None)).response()
    with call.read() as own:
        _, most = own.quotas.running()
        return Answer(_document(own.quotas.read(), most)).response()


@router.patch(
    "/v1/quotas",
    dependencies=plain,
    responses=answers(QuotasDocument, QUOTAS),
    openapi_extra=merge_patch(PATCH_QUOTAS, of="QuotaSettings"),
)
def patch_quotas(call: ChangesInstallation) -> Response:
    """Set what tenants may have that have no such quota of their own.

    Those of one tenant are its member `quotas`: `PATCH /v1/tenants/{tenant}`. For operators' keys;
    scope: admin.
    """
    document = call.document()

    def effect(tx: OperatorTransaction) -> Answer:
        lock_quotas(tx.base)
        before = _shared(tx)
        after = patched(before, document)
        if after != before:
            write_amounts(tx.base, INSTALLATION, after)
            told = (amounts_document(before), amounts_document(after))
            tx.audit("quotas.change", "quotas", *told)
        return Answer(_document(quotas_of({}, after), None))

    return call.write_installation(effect)


@router.get("/v1/quotas/notify", dependencies=plain, responses=answers(QuotaNotify, NOTIFY))
def quota_notify(call: Reads) -> Response:
    """Who is told when a quota of the tenant is used to 80 and to 100 per cent. Scope: read."""
    with call.read() as tx:
        return Answer(notify_document(tx.quotas.channels())).response()


@router.put(
    "/v1/quotas/notify",
    dependencies=plain,
    responses=answers(QuotaNotify, NOTIFY),
    openapi_extra=body(QuotaNotify, NOTIFY),
)
def put_quota_notify(call: Administers) -> Response:
    """Set who is told, in place of whoever was; an empty list: nobody. Scope: admin."""
    channels = read_notify(call.document())

    def effect(tx: Transaction) -> Answer:
        set_notify(tx, channels, call.parts.topic_prefix)
        return Answer(notify_document(channels))

    return call.write(effect)


@router.get("/v1/usage", dependencies=plain, responses=answers(Usage, USAGE))
def usage(call: Reads) -> Response:
    """What the tenant uses of its quotas at this moment. Scope: read."""
    with call.read() as tx:
        return Answer(_usage(tx)).response()


def patched(before: Amounts, document: object, where: str = "") -> Amounts:
    """Quotas under a merge patch.

    Args:
        before: what is set.
        document: the patch.
        where: its JSON pointer.

    Raises:
        InvalidInputError: with every problem.
    """
    if not isinstance(document, dict):
        problem = Problem(where, "is not an object", "a JSON merge patch")
        raise InvalidInputError("The patch is not valid.", [problem])
    return read_amounts(merge(amounts_document(before), document), where)


def _shared(tx: OperatorTransaction) -> Amounts:
    return read_amounts_of(tx.base, [INSTALLATION])[INSTALLATION]


def _document(found: Quotas, running: int | None) -> dict[str, Any]:
    document = found.document()
    return {name: document[name] for name in document if name in _FIRST} | {
        "running": or_unlimited(running),
        **{name: document[name] for name in document if name not in _FIRST},
    }


_FIRST = frozenset({Quota.JOBS, Quota.LAUNCHES_PER_MINUTE, Quota.LAUNCHES_PER_DAY})


def _usage(tx: ApiTransaction) -> dict[str, Any]:
    found = tx.quotas.read()
    counted = {c.quota: c for c in tx.quotas.used()}
    running, most = tx.quotas.running()
    launches = {
        quota.value: _item(None, None)
        if (c := counted.get(quota)) is None
        else _item(c.used, c.limit, c.window.ends_at)
        for quota in WINDOWS
    }
    return {
        "at": instant_text(tx.now),
        "jobs": _item(tx.quotas.live_jobs(), found.jobs),
        **launches,
        "running": _item(running, most),
        "requests": _requests(tx, found),
    }


def _requests(tx: ApiTransaction, found: Quotas) -> dict[str, Any]:
    rate = found.requests
    if rate is None:
        return _item(None, None)
    bucket, tokens = tx.quotas.bucket(), float(rate.burst)
    if bucket is not None:
        came = max(0.0, (tx.now - bucket.filled_at).total_seconds()) * rate.per_second
        tokens = min(tokens, bucket.tokens + came)
    full = timedelta(seconds=(rate.burst - tokens) / rate.per_second)
    return _item(rate.burst - int(tokens), rate.burst, tx.now + full)


def _item(used: int | None, limit: int | None, resets_at: datetime | None = None) -> dict[str, Any]:
    return {"used": used, "limit": or_unlimited(limit), "resets_at": instant_text(resets_at)}
