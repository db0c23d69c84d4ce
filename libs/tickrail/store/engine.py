"""The API's connections, and the port `Transaction` put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import orjson
import psycopg
from sqlalchemy import Engine, RowMapping, create_engine, select, text
from sqlalchemy.exc import NoResultFound

from tickrail.core.clock import Clock
from tickrail.core.errors import TickrailError
from tickrail.core.ids import TenantId, uuid7
from tickrail.store.audit import write_audit
from tickrail.store.backfills import BackfillTable
from tickrail.store.calendars import CalendarTable
from tickrail.store.cipher import SecretCipher
from tickrail.store.insight import InsightTable
from tickrail.store.jobs import JobTable
from tickrail.store.launches import LaunchTable
from tickrail.store.letters import LetterTable
from tickrail.store.operations import OperationTable
from tickrail.store.secrets import SecretTable
from tickrail.store.session import BoundedConnection, DatabaseSettings
from tickrail.store.tables import installation, partitions, queues, tenants
from tickrail.store.tenancy import (
    BaseTransaction,
    Caller,
    TenantTransaction,
    installation_transaction,
    tenant_transaction,
)

_WAKE = text("select pg_notify('tickrail_wake', '')")
_OVERDUE = text("select overdue_seconds()")
_LOCK_TIMEOUT = 5.0
_NO_CIPHER = SecretCipher(())
_POOL_WAIT = 10.0


def make_engine(settings: DatabaseSettings, *, pool_size: int = 16) -> Engine:
    """A pool of connections for the API's role; each is tried before it is lent.

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
        return conn

    return create_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=_POOL_WAIT,
        pool_pre_ping=True,
        json_serializer=lambda value: orjson.dumps(value).decode(),
        json_deserializer=orjson.loads,
    )


class ApiTransaction:
    """The port `Transaction` on PostgreSQL; `base` is for the other files of this room."""

    def __init__(
        self, base: TenantTransaction, clock: Clock, cipher: SecretCipher = _NO_CIPHER
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
        self._clock = clock

    def queue_kinds(self, queue: str) -> Sequence[str] | None:
        """The kinds of target that a queue serves; None: there is no such queue.

        Its row is shared: it stays, and serves them, until the transaction ends.
        """
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
        """Record who changed what."""
        write_audit(self.base, uuid7(self._clock), action, subject, before, after)

    def wake_schedulers(self) -> None:
        """At the commit, tell schedulers that there is something to do."""
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
        self._clock = clock
        self._cipher = cipher

    @contextmanager
    def tenant(self, tenant: TenantId, caller: Caller) -> Iterator[ApiTransaction]:
        """A transaction for one tenant.

        Raises:
            UnavailableError: the database does not answer.
        """
        with tenant_transaction(self.engine, tenant, caller) as tx:
            yield ApiTransaction(tx, self._clock, self._cipher)

    def installation(self, *, operator: bool = False) -> AbstractContextManager[BaseTransaction]:
        """A transaction without a tenant; `operator`: one asks, whose key was checked."""
        return installation_transaction(self.engine, operator=operator)

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


def _plain(row: RowMapping) -> Mapping[str, Any]:
    """A row whose keys are plain text: SQLAlchemy's own kind of name cannot be written as JSON."""
    return {str(name): value for name, value in row.items()}
