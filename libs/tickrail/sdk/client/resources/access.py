"""`client.api_keys`, `client.audit_log`, `client.quotas` and `client.usage`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from tickrail.sdk.client import documents, models
from tickrail.sdk.client.operation import (
    Ask,
    Resource,
    S_co,
    asked,
    listing,
    nothing,
    operation,
)


class ApiKeys(Resource[S_co]):
    """The keys of the tenant; an operator's client without a tenant has the operators' keys."""

    @operation("POST", "/v1/api-keys")
    def create(
        self, *, idempotency_key: str | None = None, **key: Unpack[documents.NewApiKey]
    ) -> Ask[models.MadeApiKey]:
        """Make a key; the answer alone has its `token`."""
        return asked(models.MadeApiKey.read, body=key, idempotency_key=idempotency_key)

    @operation("GET", "/v1/api-keys/{id}")
    def get(self, key: str) -> Ask[models.ApiKey]:
        """Read a key, without its secret."""
        return asked(models.ApiKey.read, {"id": key})

    @listing("/v1/api-keys")
    def list(self, **query: Unpack[documents.KeyQuery]) -> Ask[models.ApiKey]:
        """The keys, the newest first, without their secrets."""
        return asked(models.ApiKey.read, query=query)

    @operation("POST", "/v1/api-keys/{id}/rotate")
    def rotate(
        self,
        key: str,
        grace: documents.Duration = "1d",
        *,
        idempotency_key: str | None = None,
    ) -> Ask[models.MadeApiKey]:
        """Make a new key in the place of one, which stays valid for `grace`: 0s to 30d."""
        return asked(
            models.MadeApiKey.read,
            {"id": key},
            body={"grace": grace},
            idempotency_key=idempotency_key,
        )

    @operation("DELETE", "/v1/api-keys/{id}")
    def revoke(self, key: str) -> Ask[None]:
        """Revoke a key; within two seconds no API process takes it."""
        return asked(nothing, {"id": key})


class AuditLog(Resource[S_co]):
    """Who changed what: the tenant's entries; without a tenant, those of the installation."""

    @listing("/v1/audit-log")
    def list(self, **query: Unpack[documents.AuditQuery]) -> Ask[models.AuditEntry]:
        """The entries, the newest first unless sorted otherwise."""
        return asked(models.AuditEntry.read, query=query)


class Quotas(Resource[S_co]):
    """What the tenant may have; of an operator without a tenant, what everybody may."""

    @operation("GET", "/v1/quotas")
    def get(self) -> Ask[models.Quotas]:
        """Read them."""
        return asked(models.Quotas.read)

    @operation("PATCH", "/v1/quotas")
    def patch(self, **changes: Unpack[documents.QuotaChanges]) -> Ask[models.Quotas]:
        """Set what tenants may have that have no such quota of their own; for operators."""
        return asked(models.Quotas.read, body=changes)

    @operation("GET", "/v1/quotas/notify")
    def notified(self) -> Ask[models.QuotaNotify]:
        """Read who is told when a quota of the tenant is used to 80 and to 100 per cent."""
        return asked(models.QuotaNotify.read)

    @operation("PUT", "/v1/quotas/notify")
    def notify(self, channels: Iterable[str]) -> Ask[models.QuotaNotify]:
        """Set who is told, in place of whoever was: `webhook:<secret>`, `kafka:<topic>`."""
        return asked(models.QuotaNotify.read, body={"notify": list(channels)})


class Usage(Resource[S_co]):
    """What the tenant uses of its quotas."""

    @operation("GET", "/v1/usage")
    def get(self) -> Ask[models.Usage]:
        """Read it as it is at this moment."""
        return asked(models.Usage.read)
