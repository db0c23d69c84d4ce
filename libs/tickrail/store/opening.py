"""What a transaction that makes jobs is told at its beginning: no round trip of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tickrail.core.limits import INSTALLATION
from tickrail.core.quotas import Quotas, quotas_of
from tickrail.store.quotas import amounts_of
from tickrail.store.tenancy import TenantTransaction


@dataclass(frozen=True, slots=True)
class Opening:
    """What it is told.

    Attributes:
        kinds: what each of the queues serves, None for one that is not there. Their rows are
            shared: they stay, and serve these, until the transaction ends.
        quotas: what the tenant may have.
        egress: what its targets may reach, as an operator set it; None: as everybody's.
    """

    kinds: Mapping[str, Sequence[str] | None]
    quotas: Quotas
    egress: Mapping[str, Any] | None


def opening_of(tx: TenantTransaction, queues: Collection[str]) -> Opening:
    """What was told to a transaction that was begun with these queues."""
    kinds, amounts, egress = tx.asked
    found = amounts_of([tx.tenant, INSTALLATION], amounts or ())
    return Opening(
        {name: (kinds or {}).get(name) for name in queues},
        quotas_of(found[tx.tenant], found[INSTALLATION]),
        egress,
    )
