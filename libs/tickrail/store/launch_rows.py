"""Launch records as the columns of an insert."""

from __future__ import annotations

from collections.abc import Sequence

from tickrail.core.ports import DueJob, NewLaunch, Owned


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
    }
