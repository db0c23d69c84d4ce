"""What follows from launches that ended dead or abandoned, in the transaction that ends them.

Locks, as everywhere: jobs, then launches, each in the order of ids. So jobs that may pause
themselves are held before the launches are: `hold_jobs` comes first in a transaction, `follow_up`
last. Jobs without `pause_after` are not locked, and launches that succeed ask for nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from tickrail.core.clock import Clock
from tickrail.core.failure_notices import (
    LOOK_BACK,
    PAUSE_REASON,
    SYSTEM,
    FailedLaunch,
    PausedJob,
    launch_notice,
    pause_notice,
)
from tickrail.core.ids import JobId, LaunchId, uuid7
from tickrail.core.states import State
from tickrail.store.notices import add_notices
from tickrail.store.queries import json_text, load
from tickrail.store.session import Cursor

_SQL = load("failures")


@dataclass(frozen=True, slots=True)
class Concerned:
    """Launches that may end dead or abandoned, of jobs that want something then.

    Attributes:
        slots: the launches, each with its slot.
        jobs: those of jobs that may pause themselves; the jobs are held.
        busy: launches whose job somebody else holds: they are not to be ended now.
    """

    slots: Mapping[LaunchId, datetime] = field(default_factory=dict)
    jobs: Mapping[LaunchId, JobId] = field(default_factory=dict)
    busy: frozenset[LaunchId] = frozenset()


_NONE = Concerned()


def hold_jobs(
    cursor: Cursor, dying: Sequence[tuple[LaunchId, datetime]], *, wait: bool
) -> Concerned:
    """Hold the jobs that launches may pause by their end.

    Args:
        cursor: in a transaction that holds no launch yet.
        dying: launches that are going to be dead or abandoned, and their slots.
        wait: whether to wait for jobs that others hold; else their launches are `busy`.
    """
    if not dying:
        return _NONE
    keys = {"id": [i for i, _ in dying], "scheduled_at": [at for _, at in dying]}
    rows = cast("Any", cursor.execute(_SQL["concerned"], keys).fetchall())
    if not rows:
        return _NONE
    pausing = {launch: job for launch, job, pauses in rows if pauses}
    held: set[JobId] = set()
    if pausing:
        name = "hold_jobs" if wait else "hold_free_jobs"
        jobs = {"jobs": list(set(pausing.values()))}
        held = {row[0] for row in cast("Any", cursor.execute(_SQL[name], jobs).fetchall())}
    slots, wanted = dict(dying), {row[0] for row in rows}
    return Concerned(
        {launch: slots[launch] for launch in wanted},
        {launch: job for launch, job in pausing.items() if job in held},
        frozenset(launch for launch, job in pausing.items() if job not in held),
    )


def follow_up(
    cursor: Cursor, clock: Clock, concerned: Concerned, states: Mapping[LaunchId, State]
) -> None:
    """Tell of the launches that did end so, and pause the jobs that have seen enough of them.

    Args:
        cursor: the transaction that ended them.
        clock: makes the ids of audit entries.
        concerned: as `hold_jobs` found it.
        states: what became of launches.
    """
    ended = [i for i in concerned.slots if states.get(i) in (State.DEAD, State.ABANDONED)]
    if not ended:
        return
    keys = {"id": ended, "scheduled_at": [concerned.slots[i] for i in ended]}
    rows = cast("Any", cursor.execute(_SQL["failed"], keys).fetchall())
    failed = [FailedLaunch(*row)._replace(state=State(row[6])) for row in rows]
    paused = _pause(cursor, clock, {x.job: x.id for x in failed if x.id in concerned.jobs})
    add_notices(cursor, [*map(launch_notice, failed), *map(pause_notice, paused)])


def _pause(cursor: Cursor, clock: Clock, latest: Mapping[JobId, LaunchId]) -> Sequence[PausedJob]:
    """Pause those of the jobs that are to; each with the latest launch that ended now."""
    if not latest:
        return ()
    found = cursor.execute(
        _SQL["pause_failing"],
        {
            "jobs": list(latest),
            "launches": list(latest.values()),
            "by": SYSTEM,
            "why": PAUSE_REASON,
            "look": LOOK_BACK,
        },
    ).fetchall()
    paused = [PausedJob(*row) for row in cast("Any", found)]
    if paused:
        cursor.execute(
            _SQL["audit_pause"],
            {
                "id": [uuid7(clock) for _ in paused],
                "tenant": [p.tenant for p in paused],
                "actor": [SYSTEM for _ in paused],
                "action": ["job.pause" for _ in paused],
                "subject": [f"job:{p.job}" for p in paused],
                "after": [json_text(p.note) for p in paused],
            },
        )
    return paused
