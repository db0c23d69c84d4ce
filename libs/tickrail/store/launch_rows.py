"""What a tick decided, written: launch records, skip records, the jobs' next runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast

from tickrail.core.ids import LaunchId
from tickrail.core.ports import DueJob, NewLaunch, Owned, Planned
from tickrail.store.days import DayKeeper
from tickrail.store.queries import load
from tickrail.store.session import Cursor

_SQL: Final = load("owner")


def write_planned(
    cursor: Cursor, days: DayKeeper, owned: Owned, planned: Sequence[Planned], oldest: datetime
) -> set[LaunchId]:
    """Everything that a batch of decisions says, in the order of the locks.

    Args:
        cursor: a transaction that holds the jobs and their fence rows.
        days: makes the days that are missing.
        owned: the epochs that launch records are stamped with.
        planned: the decisions.
        oldest: the history's horizon; what was skipped before it is recorded there.

    Returns:
        The launches that were not there already.
    """
    cancel = [p.job.id for p in planned if p.decision.cancel_open]
    terminate = [p.job.id for p in planned if p.decision.terminate_open]
    if cancel and terminate:
        cursor.execute(_SQL["lock_open"], {"jobs": cancel + terminate})
    for name, ids in (("cancel_open", cancel), ("terminate_open", terminate)):
        if ids:
            cursor.execute(_SQL[name], {"jobs": ids})
    pairs = [(p.job, n) for p in planned for n in p.launches]
    skips = [(p.job, s) for p in planned for s in p.decision.skipped]
    days.ensure(
        cursor, [n.scheduled_at for _, n in pairs] + [max(s.first, oldest) for _, s in skips]
    )
    fresh: set[LaunchId] = set()
    if pairs:
        rows = cursor.execute(_SQL["insert_launches"], launch_columns(owned, pairs)).fetchall()
        fresh = {cast("LaunchId", r[0]) for r in rows}
    if skips:
        cursor.execute(
            _SQL["insert_skips"],
            {
                "job_id": [j.id for j, _ in skips],
                "first": [max(s.first, oldest) for _, s in skips],
                "last": [max(s.last, oldest) for _, s in skips],
                "tenant_id": [j.tenant for j, _ in skips],
                "count": [s.count for _, s in skips],
                "reason": [s.reason.value for _, s in skips],
            },
        )
    if planned:
        cursor.execute(
            _SQL["move_jobs"],
            {
                "id": [p.job.id for p in planned],
                "next_run_at": [p.decision.wake_at for p in planned],
                "last_slot": [p.decision.last_slot for p in planned],
                "launched": [len(p.launches) for p in planned],
                "error": [p.error for p in planned],
                "awaits": [p.decision.awaits for p in planned],
                "by_hand": [p.decision.by_hand for p in planned],
            },
        )
    return fresh


def launch_columns(owned: Owned, pairs: Sequence[tuple[DueJob, NewLaunch]]) -> dict[str, object]:
    """The columns of `insert_launches` in owner.sql."""
    return {
        "id": [n.id for _, n in pairs],
        "scheduled_at": [n.scheduled_at for _, n in pairs],
        "tenant_id": [j.tenant for j, _ in pairs],
        "job_id": [j.id for j, _ in pairs],
        "job_version": [j.version for j, _ in pairs],
        "partition": [j.partition for j, _ in pairs],
        "queue": [n.queue for _, n in pairs],
        "priority": [n.priority for _, n in pairs],
        "state": [n.state.value for _, n in pairs],
        "max_attempts": [n.max_attempts for _, n in pairs],
        "rerun": [n.rerun for _, n in pairs],
        "visibility": [n.visibility for _, n in pairs],
        "due_at": [n.due_at for _, n in pairs],
        "start_before": [n.start_before for _, n in pairs],
        "epoch": [owned[j.partition] for j, _ in pairs],
        "concurrency_key": [n.concurrency and n.concurrency.key for _, n in pairs],
        "concurrency_limit": [n.concurrency and n.concurrency.limit for _, n in pairs],
        "trace": [n.trace for _, n in pairs],
    }
