"""An operator's transaction that names no tenant: the installation's own records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tickrail.core.clock import Clock
from tickrail.core.ids import uuid7
from tickrail.store.audit import write_operator_audit
from tickrail.store.keys import KeyTable
from tickrail.store.tenancy import BaseTransaction, Caller


class OperatorTransaction:
    """What operators see and change where they name no tenant."""

    def __init__(self, base: BaseTransaction, caller: Caller, clock: Clock) -> None:
        """Put it together.

        Args:
            base: a transaction that an operator asked for, whose key was checked.
            caller: who asks.
            clock: makes the ids of audit entries.
        """
        self.base = base
        self.tenant = None
        self.now = base.now
        self.actor = caller.actor
        self.keys = KeyTable(base, None)
        self._caller = caller
        self._clock = clock

    def audit(
        self,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Record who changed what."""
        write_operator_audit(
            self.base, self._caller, uuid7(self._clock), action, subject, after, before=before
        )
