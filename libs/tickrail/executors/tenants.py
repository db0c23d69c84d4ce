"""What a webhook needs of its tenant: secrets and egress lists, read aside and kept for seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol
from uuid import UUID

from tickrail.core.clock import Clock
from tickrail.core.secrets import Masker, SecretReader
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.kept import Kept
from tickrail.executors.webhook_request import CertainError

_SECONDS = 5.0


class TargetFacts(SecretReader, Protocol):
    """What a call needs of its tenant besides the run."""

    def egress(self, tenant: UUID) -> Mapping[str, object] | None:
        """The tenant's egress lists; None where there are none.

        Raises:
            UnavailableError: the database does not answer.
        """
        ...


class NoFacts:
    """Tenants without secrets and lists."""

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        """None."""
        del tenant, names
        return {}

    def egress(self, tenant: UUID) -> Mapping[str, object] | None:
        """None."""
        del tenant
        return None


class Tenants:
    """Facts of tenants, for calls on one event loop."""

    def __init__(
        self, facts: TargetFacts, usual: EgressPolicy, threads: Executor, clock: Clock
    ) -> None:
        """Nothing read yet.

        Args:
            facts: where they are read.
            usual: what holds for tenants without lists.
            threads: where reading may block.
            clock: measures for how long they are kept.
        """
        self._facts = facts
        self._usual = usual
        self._policies: dict[UUID, tuple[object, EgressPolicy]] = {}
        self._egress = Kept(facts.egress, threads, clock, _SECONDS)
        self._secrets = Kept(self._read, threads, clock, _SECONDS)

    async def policy(self, tenant: UUID) -> EgressPolicy:
        """What the tenant may call; the same object while its lists are the same.

        Raises:
            CertainError: they cannot be read, so it may call nothing.
            UnavailableError: the database does not answer.
        """
        document = await self._egress.get(tenant)
        if not document:
            self._policies.pop(tenant, None)
            return self._usual
        kept = self._policies.get(tenant)
        if kept is not None and kept[0] == document:
            return kept[1]
        try:
            found = self._usual.narrowed(document)
        except ValueError as error:
            message = f"the tenant's egress lists cannot be read: {error}"
            raise CertainError("refused_egress", message, retryable=False) from error
        self._policies[tenant] = (document, found)
        return found

    async def secrets(
        self, tenant: UUID, names: tuple[str, ...]
    ) -> tuple[Mapping[str, bytes], Masker]:
        """The values of secrets, and what masks them.

        Raises:
            CertainError: one of them is not there.
            UnavailableError: the database does not answer.
            SetupError: one of them cannot be decrypted.
        """
        values, masker = await self._secrets.get((tenant, names))
        missing = [name for name in names if name not in values]
        if missing:
            message = f"there is no secret of the name {missing[0]!r}"
            raise CertainError("secret_missing", message, retryable=False)
        return values, masker

    def _read(self, key: tuple[UUID, tuple[str, ...]]) -> tuple[Mapping[str, bytes], Masker]:
        values = self._facts.get(*key)
        return values, Masker(values.values())
