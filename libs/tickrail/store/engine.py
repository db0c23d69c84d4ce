"""The API's connections, and the port `Transaction` put together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import EllipsisType
from typing import Any, Final
from uuid import UUID

import orjson
import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads
from sqlalchemy import Engine, RowMapping, create_engine, select, text
from sqlalchemy.exc import NoResultFound

from tickrail.core.clock import Clock
from tickrail.core.errors import TickrailError
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.ports_api import AuditEntry
from tickrail.store.audit import write_audit_entries
from tickrail.store.backfills import BackfillTable
from tickrail.store.calendars import CalendarTable
from tickrail.store.cipher import SecretCipher
from tickrail.store.insight import InsightTable
from tickrail.store.jobs import JobTable
from tickrail.store.keys import KeyTable
from tickrail.store.launches import LaunchTable
from tickrail.store.letters import LetterTable
from tickrail.store.opening import Opening, opening_of
from tickrail.store.operations import OperationTable
from tickrail.store.operator import OperatorTransaction
from tickrail.store.quotas import QuotaTable
from tickrail.store.secrets import SecretTable
from tickrail.store.session import BoundedConnection, DatabaseSettings
from tickrail.store.tables import installation, partitions, queues
from tickrail.store.tenancy import (
    BaseTransaction,
    Caller,
    TenantTransaction,
    installation_transaction,
    read_at_once,
    tenant_transaction,
)
from tickrail.store.tenant_tables import tenants

_EGRESS: Final = sql.SQL("select egress from tenants where id = {}")
_WAKE = text("select pg_notify('tickrail_wake', '')")
_OVERDUE = text("select overdue_seconds()")
_LAG = text(
    "select queue, priority, due, queued, running,"
    " extract(epoch from now() - oldest_due) as oldest_due,"
    " extract(epoch from now() - oldest_queued) as oldest_queued"
    ' from work_lag() order by queue collate "C", priority'
)
_LOCK_TIMEOUT = 5.0
_NO_CIPHER = SecretCipher(())
_POOL_WAIT = 10.0
_MOST_KNOWN = 10_000


def make_engine(settings: DatabaseSettings, *, pool_size: int = 16) -> Engine:
    """A pool of connections for the API's role; `store/tenancy.py` begins its transactions.

    Args:
        settings: the API role's.
        pool_size: at most so many connections; who finds none free waits for ten seconds.
    """
    options = " ".join(
        f"-c {key}={value}"
        for key, value in {
            "statement_timeout": int(settings.statement_timeout * 1000),
            "idle_in_transaction_session_timeout": int(settings.idle_timeout * 1000),
            "lock_timeout": int(_LOCK_TIMEOUT * 1000),
            "timezone": "UTC",
            "jit": "off",
        }.items()
    )

    def connect() -> psycopg.Connection[Any]:
        # The driver reads every form of a connection string; SQLAlchemy only URLs.
        conn = BoundedConnection.connect(
            settings.url,
            autocommit=True,
            application_name=settings.name,
            options=options,
            connect_timeout=settings.connect_within,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
        )
        conn.answer_within = settings.answer_within
        conn.prepare_threshold = 5 if settings.prepare else None
        set_json_loads(orjson.loads, conn)
        return conn

    return create_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=_POOL_WAIT,
        json_serializer=lambda value: orjson.dumps(value).decode(),
        json_deserializer=orjson.loads,
    )


class EgressChangedError(Exception):
    """What was checked by a tenant's egress lists has to be checked again."""


class ApiTransaction:
    """The port `Transaction` on PostgreSQL; `base` is for the other files of this room."""

    def __init__(
        self,
        base: TenantTransaction,
        clock: Clock,
        cipher: SecretCipher = _NO_CIPHER,
        opening: Opening | None = None,
    ) -> None:
        self.base = base
        self.tenant = base.tenant
        self.now = base.now
        self.actor = base.caller.actor
        self.jobs = JobTable(base)
        self.launches = LaunchTable(base)
        self.calendars = CalendarTable(base)
        self.backfills = BackfillTable(base)
        self.operations = OperationTable(base)
        self.letters = LetterTable(base)
        self.insight = InsightTable(base)
        self.secrets = SecretTable(base, cipher)
        self.quotas = QuotaTable(base, clock, None if opening is None else opening.quotas)
        self.keys = KeyTable(base, base.tenant)
        self._clock = clock
        self._kinds = {} if opening is None else opening.kinds
        self._entries: list[tuple[UUID, AuditEntry]] = []
        self._wakes = False

    def queue_kinds(self, queue: str) -> Sequence[str] | None:
        """The kinds of target that a queue serves; None: there is no such queue.

        Its row is shared: it stays, and serves them, until the transaction ends.
        """
        if queue in self._kinds:
            return self._kinds[queue]
        shared = select(queues.c.kinds).where(queues.c.name == queue)
        found: Sequence[str] | None = self.base.execute(
            shared.with_for_update(read=True, key_share=True)
        ).scalar_one_or_none()
        return found

    def kafka_topics(self) -> Sequence[str]:
        """The topics that targets of this tenant may send to, as patterns (`orders.*`)."""
        found: Sequence[str] | None = self.base.execute(
            select(tenants.c.kafka_topics).where(tenants.c.id == self.tenant)
        ).scalar_one_or_none()
        return found or ()

    def egress(self) -> Mapping[str, Any] | None:
        """What targets of this tenant may reach, as an operator set it; None: as everybody's."""
        found: Mapping[str, Any] | None = self.base.execute(
            select(tenants.c.egress).where(tenants.c.id == self.tenant)
        ).scalar_one_or_none()
        return found

    def audit(
        self,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Record who changed what; written before the commit, with all the others."""
        self.audit_many([AuditEntry(action, subject, before, after)])

    def audit_many(self, entries: Sequence[AuditEntry]) -> None:
        """Record many changes at once."""
        self._entries += [(uuid7(self._clock), e) for e in entries]

    def wake_schedulers(self) -> None:
        """At the commit, tell schedulers that there is something to do."""
        self._wakes = True

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """What is written inside is undone at its end; its locks stay until the transaction's."""
        kept, wakes = len(self._entries), self._wakes
        with self.base.rehearsal():
            yield
        del self._entries[kept:]
        self._wakes = wakes

    def finish(self) -> None:
        """Write what was left to the end; the commit follows."""
        if self._entries:
            write_audit_entries(self.base, self._entries, wake=self._wakes)
        elif self._wakes:
            self.base.execute(_WAKE)


class ApiDatabase:
    """The API's way into the database. Safe to use from several threads."""

    def __init__(
        self,
        settings: DatabaseSettings,
        clock: Clock,
        *,
        pool_size: int = 16,
        cipher: SecretCipher = _NO_CIPHER,
    ) -> None:
        """A pool that opens its connections when they are needed.

        Args:
            settings: the API role's.
            clock: makes the ids of audit entries.
            pool_size: connections at most.
            cipher: encrypts secrets; without it none can be written.
        """
        self.engine = make_engine(settings, pool_size=pool_size)
        self._egress: dict[TenantId, Mapping[str, Any] | None] = {}
        self._clock = clock
        self._cipher = cipher

    @contextmanager
    def tenant(
        self,
        tenant: TenantId,
        caller: Caller,
        queues: Collection[str] = (),
        egress: Mapping[str, Any] | EllipsisType | None = ...,
    ) -> Iterator[ApiTransaction]:
        """A transaction for one tenant.

        Args:
            tenant: whose.
            caller: who asks.
            queues: of jobs that will be made: their kinds and the tenant's quotas are read at once.
            egress: the tenant's lists by which their targets were checked, if they were.

        Raises:
            EgressChangedError: it has others by now; nothing was done.
            UnavailableError: the database does not answer.
        """
        with tenant_transaction(self.engine, tenant, caller, queues) as tx:
            opening = opening_of(tx, queues) if queues else None
            if opening is not None and egress is not ... and opening.egress != egress:
                self._note_egress(tenant, opening.egress)
                raise EgressChangedError
            made = ApiTransaction(tx, self._clock, self._cipher, opening)
            yield made
            made.finish()

    def egress(self, tenant: TenantId) -> Mapping[str, Any] | None:
        """As `ApiTransaction.egress`, in a transaction of its own that costs one round trip.

        Raises:
            UnavailableError: the database does not answer.
        """
        row = read_at_once(self.engine, tenant, _EGRESS.format(str(tenant)))
        return None if row is None else row[0]

    def known_egress(self, tenant: TenantId) -> Mapping[str, Any] | None:
        """As `egress`, or as it was when this process last saw it: `tenant` compares it."""
        if tenant not in self._egress:
            self._note_egress(tenant, self.egress(tenant))
        return self._egress.get(tenant)

    def _note_egress(self, tenant: TenantId, lists: Mapping[str, Any] | None) -> None:
        if len(self._egress) >= _MOST_KNOWN:
            self._egress.clear()
        self._egress[tenant] = lists

    def installation(self, *, operator: bool = False) -> AbstractContextManager[BaseTransaction]:
        """A transaction without a tenant; `operator`: one asks, whose key was checked."""
        return installation_transaction(self.engine, operator=operator)

    @contextmanager
    def operator(self, caller: Caller) -> Iterator[OperatorTransaction]:
        """A transaction of an operator who names no tenant and whose key was checked.

        Raises:
            UnavailableError: the database does not answer.
        """
        with installation_transaction(self.engine, operator=True) as tx:
            yield OperatorTransaction(tx, caller, self._clock)

    def trouble(self) -> dict[str, str]:
        """What keeps the database from serving, in words; empty when nothing does."""
        try:
            with self.installation() as tx:
                tx.execute(select(installation.c.partitions)).one()
        except (TickrailError, NoResultFound) as e:
            return {"postgresql": str(e)}
        return {}

    def close(self) -> None:
        """Close the pool."""
        self.engine.dispose()


def list_partitions(tx: BaseTransaction, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
    """The fence rows of partitions: epoch and owner."""
    p = partitions.c
    rows = tx.execute(
        select(partitions).where(p.partition > after).order_by(p.partition).limit(limit)
    )
    return [_plain(r) for r in rows.mappings()]


def read_generation(tx: BaseTransaction) -> int:
    """The installation's generation."""
    found: int = tx.execute(select(installation.c.generation)).scalar_one()
    return found


def read_overdue(tx: BaseTransaction) -> float:
    """Seconds that the active job which is due longest waits for its tick; 0 where none is due."""
    found: float = tx.execute(_OVERDUE).scalar_one()
    return found


def read_lag(tx: BaseTransaction) -> list[Mapping[str, Any]]:
    """What of each queue and class waits and runs, and for how many seconds the oldest waits."""
    return [_plain(r) for r in tx.execute(_LAG).mappings()]


def _plain(row: RowMapping) -> Mapping[str, Any]:
    """A row whose keys are plain text: SQLAlchemy's own kind of name cannot be written as JSON."""
    return {str(name): value for name, value in row.items()}
