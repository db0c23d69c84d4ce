"""The port `InsightRecords` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import select, text

from tickrail.core.explain import MANY
from tickrail.core.explain_facts import Ahead, Cap, Facts, Other, Serving, Wait
from tickrail.core.ids import LaunchId, Partition
from tickrail.core.job_filter import JobState
from tickrail.core.limits import Limit, Rate
from tickrail.core.ports_insight import LogRecord
from tickrail.core.records import LaunchRecord
from tickrail.core.states import State
from tickrail.store.queries import load
from tickrail.store.tables import launch_logs
from tickrail.store.tenancy import TenantTransaction

_G = launch_logs.c
_SQL = {name: text(sql) for name, sql in load("explain").items()}
_HEARD_WITHIN = timedelta(seconds=20)


class InsightTable:
    """Launches of the transaction's tenant, seen from inside."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def log(self, launch: LaunchRecord, attempt: int) -> LogRecord | None:
        """What an attempt printed; None: nothing is known of it."""
        row: Any = self._tx.execute(
            select(_G.attempt, _G.body, _G.size, _G.ended, _G.updated_at).where(
                _G.scheduled_at == launch.scheduled_at,
                _G.launch_id == launch.id,
                _G.attempt == attempt,
            )
        ).one_or_none()
        return None if row is None else LogRecord(*row)

    def facts(self, launch: LaunchRecord) -> Facts:
        """Where the launch stands, the owner of its partition aside."""
        keys = {"launch": launch.id, "at": launch.scheduled_at}
        row: Any = self._tx.execute(_SQL["facts"], keys).one()
        kind = next(iter(row.definition["target"]))
        counts: Any = self._tx.execute(_SQL["counts"], {**keys, "most": MANY}).one()
        holders: Any = ()
        if row.concurrency_key is not None:
            holders = self._tx.execute(_SQL["holders"], {"key": row.concurrency_key}).all()
        return Facts(
            now=self._tx.now,
            launch=launch,
            partition=Partition(row.partition),
            kind=kind,
            start_before=row.start_before,
            claim_expires_at=row.claim_expires_at,
            publications=row.publications,
            key=row.concurrency_key,
            key_limit=row.concurrency_limit,
            tenant_active=row.tenant_active,
            job_state=JobState(row.job_state),
            job_paused=row.job_paused,
            overlap=row.definition["overlap"],
            calendars=_calendars(row.definition),
            others=[_other(r) for r in self._rows("others", job=launch.job, launch=launch.id)],
            held_before=self._rows("held_before", **keys, job=launch.job)[0][0],
            holders=[_other(r) for r in holders],
            holding=holders[0].holding if holders else 0,
            queue_there=row.queue_there,
            queue_paused=row.queue_paused,
            caps=[
                _cap(r, counts)
                for r in self._rows("caps", tenant=self._tx.tenant, queue=launch.queue)
            ],
            waits=[Wait(w["shared"], w["kind"], w["reason"]) for w in counts.waits],
            ahead=Ahead(counts.relay_ahead, counts.kafka_ahead),
            serving=Serving(
                *self._rows("serving", queue=launch.queue, kind=kind, within=_HEARD_WITHIN)[0]
            ),
        )

    def _rows(self, statement: str, **parameters: object) -> Any:  # noqa: ANN401 - rows of any shape
        return self._tx.execute(_SQL[statement], parameters).all()


def _other(row: Any) -> Other:  # noqa: ANN401 - a row of any shape
    return Other(LaunchId(row.id), State(row.state), row.worker)


def _cap(row: Any, counts: Any) -> Cap:  # noqa: ANN401 - as above
    rate = None if row.rate_count is None else Rate(row.rate_count, row.rate_seconds)
    running = counts.tenant_running
    if row.queue:
        running = counts.queue_running if row.shared else counts.part_running
    limit = Limit(row.paused, row.max_running, rate, row.tokens, row.filled_at)
    return Cap(row.shared, row.queue, limit, row.paused_reason, running)


def _calendars(definition: Mapping[str, Any]) -> list[str]:
    named = definition.get("calendars") or {}
    return [name for part in ("include", "exclude") for name in named.get(part) or ()]
