"""Crowds of launches that ask for the same places, on a bed of the launch store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.store_bed import (
    TENANT,
    Bed,
    end_of,
    make_job,
    make_launch,
    request_of,
    verdict,
)

from tickrail.core.ids import LaunchId, TenantId
from tickrail.core.ports_worker import ClaimAnswer, Claimed, WorkerStore
from tickrail.core.states import State


def crowd(bed: Bed, count: int, tenant: TenantId = TENANT, **columns: Any) -> list[LaunchId]:
    """Launches of one job, each due a second later than the one before, all of them by now."""
    job = make_job(bed, tenant=tenant, overlap="allow")
    return [make_launch(bed, job, due_in=-count + n, **columns) for n in range(count)]


def ask(bed: Bed, store: WorkerStore, launches: Sequence[LaunchId]) -> ClaimAnswer:
    """A claim of all of them."""
    return store.claim([request_of(bed, x, bed.row(x).attempt) for x in launches], "w-1")


def succeed(store: WorkerStore, *claimed: Claimed) -> None:
    """End these attempts, which must be under way."""
    answer = store.finish(
        [end_of(c, verdict(c, State.SUCCEEDED))._replace(limited=c.limited) for c in claimed]
    )
    assert not answer.stale


def due_now(bed: Bed, launches: Sequence[LaunchId]) -> list[LaunchId]:
    """Those of them that are due by now."""
    now = bed.now()
    rows = [bed.row(x) for x in launches]
    return [x.id for x in rows if x.state is State.DUE and x.due_at <= now]


def ids(answer: ClaimAnswer) -> set[LaunchId]:
    """Whose claims were granted."""
    return {c.id for c in answer.granted}
