"""`client.queues`, `client.tenants` and `client.system`."""

from __future__ import annotations

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


class Queues(Resource[S_co]):
    """Queues of the installation.

    An operator's client changes a queue for everybody; a tenant's, or one `with_tenant()`, the
    tenant's own limits and pause in it.
    """

    @operation("GET", "/v1/queues/{name}")
    def get(self, name: str) -> Ask[models.Queue]:
        """Read a queue: its limits, and how much waits there."""
        return asked(models.Queue.read, {"name": name})

    @listing("/v1/queues")
    def list(self, **query: Unpack[documents.PageQuery]) -> Ask[models.Queue]:
        """The queues by name."""
        return asked(models.Queue.read, query=query)

    @operation("PUT", "/v1/queues/{name}")
    def put(
        self,
        name: str,
        *,
        if_match: int | None = None,
        create_only: bool = False,
        **queue: Unpack[documents.NewQueue],
    ) -> Ask[models.Queue]:
        """Create or replace a queue; for operators."""
        return asked(
            models.Queue.read,
            {"name": name},
            body=queue,
            if_match=if_match,
            create_only=create_only,
        )

    @operation("PATCH", "/v1/queues/{name}")
    def patch(
        self, name: str, *, if_match: int | None = None, **changes: Unpack[documents.QueueChanges]
    ) -> Ask[models.Queue]:
        """Change a queue for everybody, or the tenant's own limits in it."""
        return asked(models.Queue.read, {"name": name}, body=changes, if_match=if_match)

    @operation("DELETE", "/v1/queues/{name}")
    def delete(self, name: str, *, if_match: int | None = None) -> Ask[None]:
        """Delete a queue that no job and no open launch is in; for operators."""
        return asked(nothing, {"name": name}, if_match=if_match)

    @operation("POST", "/v1/queues/{name}/pause")
    def pause(
        self, name: str, reason: str = "", *, idempotency_key: str | None = None
    ) -> Ask[models.Queue]:
        """Start nothing more of a queue: for everybody, or of the tenant."""
        return asked(
            models.Queue.read,
            {"name": name},
            body={"reason": reason},
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/queues/{name}/resume")
    def resume(self, name: str, *, idempotency_key: str | None = None) -> Ask[models.Queue]:
        """Let a paused queue go on: for everybody, or the tenant's part."""
        return asked(models.Queue.read, {"name": name}, idempotency_key=idempotency_key)


class Tenants(Resource[S_co]):
    """Tenants, by id or name; for operators."""

    @operation("POST", "/v1/tenants")
    def create(
        self, *, idempotency_key: str | None = None, **tenant: Unpack[documents.NewTenant]
    ) -> Ask[models.Tenant]:
        """Make a tenant; `client.with_tenant(name).api_keys.create()` makes its first key."""
        return asked(models.Tenant.read, body=tenant, idempotency_key=idempotency_key)

    @operation("GET", "/v1/tenants/{tenant}")
    def get(self, tenant: str) -> Ask[models.Tenant]:
        """Read a tenant."""
        return asked(models.Tenant.read, {"tenant": tenant})

    @listing("/v1/tenants")
    def list(self, **query: Unpack[documents.TenantQuery]) -> Ask[models.Tenant]:
        """The tenants by name."""
        return asked(models.Tenant.read, query=query)

    @operation("PATCH", "/v1/tenants/{tenant}")
    def patch(
        self,
        tenant: str,
        *,
        if_match: int | None = None,
        **changes: Unpack[documents.TenantChanges],
    ) -> Ask[models.Tenant]:
        """Set a tenant's share of turns, how much of it may run, and what its targets may reach."""
        return asked(models.Tenant.read, {"tenant": tenant}, body=changes, if_match=if_match)

    @operation("DELETE", "/v1/tenants/{tenant}")
    def delete(self, tenant: str) -> Ask[None]:
        """Delete a tenant: no key of it is taken, nothing of it starts; `resume` takes it back."""
        return asked(nothing, {"tenant": tenant})

    @operation("POST", "/v1/tenants/{tenant}/suspend")
    def suspend(
        self, tenant: str, reason: str = "", *, idempotency_key: str | None = None
    ) -> Ask[models.Tenant]:
        """Let nothing more of a tenant start and refuse its keys; what runs ends."""
        return asked(
            models.Tenant.read,
            {"tenant": tenant},
            body={"reason": reason},
            idempotency_key=idempotency_key,
        )

    @operation("POST", "/v1/tenants/{tenant}/resume")
    def resume(
        self, tenant: str, reason: str = "", *, idempotency_key: str | None = None
    ) -> Ask[models.Tenant]:
        """Let a tenant go on that was suspended or deleted."""
        return asked(
            models.Tenant.read,
            {"tenant": tenant},
            body={"reason": reason},
            idempotency_key=idempotency_key,
        )


class System(Resource[S_co]):
    """Schedulers and what each owns, workers, zone data; for operators."""

    @operation("GET", "/v1/system/members")
    def members(self) -> Ask[models.Members]:
        """The schedulers that are present, and drained names of which none is."""
        return asked(models.Members.read)

    @listing("/v1/system/partitions")
    def partitions(self, **query: Unpack[documents.PageQuery]) -> Ask[models.Partition]:
        """Who owns each partition, its epochs, and what is left of the lease."""
        return asked(models.Partition.read, query=query)

    @listing("/v1/system/workers")
    def workers(self) -> Ask[models.Worker]:
        """The workers that are there: what each serves and how much it runs."""
        return asked(models.Worker.read)

    @operation("GET", "/v1/system/lag")
    def lag(self) -> Ask[models.Lag]:
        """How far behind planning, publishing and starting are, by queue and class."""
        return asked(models.Lag.read)

    @operation("POST", "/v1/system/members/{member}/drain")
    def drain(self, member: str) -> Ask[models.Drained]:
        """Drain a scheduler: it hands its partitions over at once."""
        return asked(models.Drained.read, {"member": member})

    @operation("DELETE", "/v1/system/members/{member}/drain")
    def undrain(self, member: str) -> Ask[None]:
        """End the drain of a scheduler: it gets its partitions back."""
        return asked(nothing, {"member": member})

    @operation("GET", "/v1/system/tzdata")
    def tzdata(self, **query: Unpack[documents.PageQuery]) -> Ask[models.ZoneData]:
        """The zone data in use, and a page of the next runs that a change of it moved."""
        return asked(models.ZoneData.read, query=query)
