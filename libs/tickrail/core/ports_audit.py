"""Who changed what: an entry for each change, as it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from tickrail.core.records import Page, PageRequest


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change: `before` and `after` are what it was and is, as far as that was there.

    `actor` is who asked (`key:<id>`, `subject:<issuer>/<sub>`, `operator:<id>`), `address` from
    where, `request_id` by which request.
    """

    id: UUID
    at: datetime
    actor: str
    action: str
    subject: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    request_id: str
    address: str


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries: `since <= at < until`, and each of the others where it is given."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    request_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditRecords(Protocol):
    """The entries of the transaction's tenant, or of the installation where it has none."""

    @property
    def now(self) -> datetime:
        """The database's clock at the beginning of the transaction."""
        ...

    def page(self, where: AuditFilter, page: PageRequest) -> Page[AuditRecord]:
        """Entries in order of (at, id)."""
        ...
