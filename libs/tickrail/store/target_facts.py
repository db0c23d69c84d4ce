"""What a worker reads for the targets of its runs: secrets, and what a tenant may reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
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
        with self._sessions.transaction(_TIMEOUT) as cursor:
            rows = cursor.execute(
                _SQL["secrets"], {"tenant": tenant, "names": list(names)}
            ).fetchall()
        return {
            name: self._cipher.decrypt(tenant, name, bytes(ciphertext))
            for name, ciphertext in cast("Any", rows)
        }

    def egress(self, tenant: UUID) -> Mapping[str, Any] | None:
        """The tenant's lists, as the operator wrote them; None where there are none.

        Raises:
            UnavailableError: the database does not answer.
        """
        with self._sessions.transaction(_TIMEOUT) as cursor:
            row = cursor.execute(_SQL["egress"], {"tenant": tenant}).fetchone()
        return None if row is None else cast("Any", row[0])

    def kafka_topics(self, tenant: UUID) -> Sequence[str]:
        """The topics that targets of the tenant may send to, as patterns.

        Raises:
            UnavailableError: the database does not answer.
        """
        with self._sessions.transaction(_TIMEOUT) as cursor:
            row = cursor.execute(_SQL["kafka_topics"], {"tenant": tenant}).fetchone()
        return () if row is None else cast("Any", row[0])

    def close(self) -> None:
        """Close the connections."""
        self._sessions.close()
