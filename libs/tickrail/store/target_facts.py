"""What a worker reads for the targets of its runs: secrets, and what a tenant may reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from tickrail.store.cipher import SecretCipher
from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings, SessionPool

_SQL = load("targets")
_TIMEOUT = 5.0
_SESSIONS = 2


class PostgresTargetFacts:
    """The port `SecretReader`, and tenants' egress lists. Safe to use from several threads."""

    def __init__(self, settings: DatabaseSettings, cipher: SecretCipher) -> None:
        """Connects at first use.

        Args:
            settings: the engine role's.
            cipher: with the keys of this process.
        """
        soon = replace(settings, statement_timeout=_TIMEOUT, idle_timeout=_TIMEOUT)
        self._sessions = SessionPool(soon, _SESSIONS)
        self._cipher = cipher

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        """The values of a tenant's secrets; those that are not there are left out."""
        rows = self._sessions.read(
            _SQL["secrets"], {"tenant": tenant, "names": list(names)}, _TIMEOUT
        )
        return {
            name: self._cipher.decrypt(tenant, name, bytes(ciphertext)) for name, ciphertext in rows
        }

    def egress(self, tenant: UUID) -> Mapping[str, Any] | None:
        """The tenant's lists, as the operator wrote them; None where there are none.

        Raises:
            UnavailableError: the database does not answer.
        """
        rows = self._sessions.read(_SQL["egress"], {"tenant": tenant}, _TIMEOUT)
        return rows[0][0] if rows else None

    def kafka_topics(self, tenant: UUID) -> Sequence[str]:
        """The topics that targets of the tenant may send to, as patterns.

        Raises:
            UnavailableError: the database does not answer.
        """
        rows = self._sessions.read(_SQL["kafka_topics"], {"tenant": tenant}, _TIMEOUT)
        return rows[0][0] if rows else ()

    def close(self) -> None:
        """Close the connections."""
        self._sessions.close()
