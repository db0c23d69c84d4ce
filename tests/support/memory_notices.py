"""What follows from launches that ended dead or abandoned, and notices, in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID, uuid4

from tests.support.memory_tables import JobRow, LaunchRow, MemoryDatabase

from tickrail.core.definition import instant_text
from tickrail.core.failure_notices import (
    LOOK_BACK,
    PAUSE_REASON,
    SYSTEM,
    FailedLaunch,
    PausedJob,
    launch_notice,
    pause_notice,
)
from tickrail.core.ids import JobId, LaunchId
from tickrail.core.on_failures import ChannelKind
from tickrail.core.ports_notice import (
    ANY_ROOM,
    MOST_A_MINUTE,
    NewNotice,
    NoticeEnd,
    NoticeKind,
    OwedNotice,
    TenantRoom,
)
from tickrail.core.states import State

_FAILED = (State.DEAD, State.ABANDONED)
_ENDED = (*_FAILED, State.SUCCEEDED)
_GRACE = timedelta(seconds=65)


@dataclass
class NoticeRow:
    """A row of `notices`."""

    owed: OwedNotice
    minute: datetime
    due_at: datetime
    state: str = "pending"
    error: str = ""


def _wanted(job: JobRow) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = json.loads(job.definitions[job.version]).get("on_failures")
    return found


def busy(db: MemoryDatabase, launches: Iterable[LaunchId]) -> set[LaunchId]:
    """Those whose job may pause itself and is held by somebody else."""
    found = set()
    for launch in launches:
        row = db.launches.get(launch)
        if row is not None and row.job_id in db.locked_jobs:
            wanted = _wanted(db.jobs[row.job_id])
            if wanted is not None and wanted["pause_after"] is not None:
                found.add(launch)
    return found


def go_on(job: JobRow, now: datetime) -> None:
    """A job is planned again, after a pause or not."""
    if job.state == "paused":
        job.failures_from = now
    job.resume_at = job.paused = None


def follow_up(db: MemoryDatabase, states: Mapping[LaunchId, State], now: datetime) -> None:
    """Tell of the launches that ended so, and pause the jobs that have seen enough of them."""
    ended = [db.launches[i] for i, state in states.items() if state in _FAILED]
    ended.sort(key=lambda x: (x.tenant_id, x.job_id, x.scheduled_at, x.id))
    failed = [
        _failed(db.jobs[x.job_id], x, wanted)
        for x in ended
        if (wanted := _wanted(db.jobs[x.job_id])) is not None
    ]
    latest = {x.job: x.id for x in failed}
    paused = [p for job, launch in latest.items() if (p := _pause(db, job, launch, now))]
    add_notices(db, [*map(launch_notice, failed), *map(pause_notice, paused)], now)


def _failed(job: JobRow, x: LaunchRow, wanted: Mapping[str, Any]) -> FailedLaunch:
    assert x.finished_at is not None
    return FailedLaunch(
        x.id, x.scheduled_at, x.tenant_id, x.job_id, job.name, x.origin, x.state, x.attempt,
        x.failures, x.finished_at, x.result, wanted,
    )  # fmt: skip


def _pause(db: MemoryDatabase, job: JobId, launch: LaunchId, now: datetime) -> PausedJob | None:
    row = db.jobs[job]
    wanted = _wanted(row)
    if row.state != "active" or wanted is None or wanted["pause_after"] is None:
        return None
    over = [x for x in db.launches.values() if x.job_id == job and x.finished_at is not None]
    over.sort(key=lambda x: x.scheduled_at, reverse=True)
    since = row.failures_from
    latest = [
        x.state
        for x in over[:LOOK_BACK]
        if x.state in _ENDED and (since is None or (x.finished_at or now) > since)
    ][: wanted["pause_after"]]
    if len(latest) < wanted["pause_after"] or State.SUCCEEDED in latest:
        return None
    row.state, row.resume_at = "paused", None
    row.paused = {
        "by": SYSTEM,
        "at": instant_text(now.replace(microsecond=0)),
        "reason": f"{PAUSE_REASON}{wanted['pause_after']}",
        "until": None,
        "launch": str(launch),
    }
    return PausedJob(job, row.tenant_id, row.name, row.paused, wanted)


def add_notices(db: MemoryDatabase, notices: Sequence[NewNotice], now: datetime) -> None:
    """Keep notices, a row for each channel; those beyond the bound in one more."""
    minute = now.replace(second=0, microsecond=0)
    for n in notices:
        for channel in n.channels:
            owed = OwedNotice(
                uuid4(), n.tenant, n.kind.value, n.about, channel, n.text, n.data, 0, now, 0
            )
            near = [
                x
                for x in db.notices
                if x.minute == minute and x.owed[1] == n.tenant and x.owed[3:5] == owed[3:5]
            ]
            same = [x for x in near if x.owed.kind == owed.kind and not x.owed.suppressed]
            if len(same) < MOST_A_MINUTE:
                db.notices.append(NoticeRow(owed, minute, now))
                continue
            sums = [x for x in near if x.owed.suppressed]
            if not sums:
                kind = NoticeKind.SUPPRESSED.value
                sums = [NoticeRow(owed._replace(kind=kind), minute, minute + _GRACE)]
                db.notices += sums
            told = sums[0].owed
            more = told._replace(suppressed=told.suppressed + 1, text=n.text, data=n.data)
            sums[0].owed = more


class MemoryNoticeStore:
    """`core.ports_notice.NoticeStore`."""

    def __init__(self, db: MemoryDatabase) -> None:
        self._db = db

    def take(
        self,
        kinds: Collection[ChannelKind],
        limit: int,
        hold: timedelta,
        room: TenantRoom = ANY_ROOM,
    ) -> Sequence[OwedNotice]:
        with self._db.transaction("take_notices") as now:
            due = [
                x
                for x in self._db.notices
                if x.state == "pending" and x.due_at <= now and x.owed.channel.kind in kinds
                if x.owed.tenant not in self._db.suspended
            ]
            due.sort(key=lambda x: (x.owed.tenant, x.due_at))
            turns: list[tuple[int, datetime, NoticeRow]] = []
            for tenant, rows in groupby(due, key=lambda x: x.owed.tenant):
                out = room.out.get(tenant, 0)
                turns += [(t, x.due_at, x) for t, x in enumerate(rows, out) if t < room.most]
            chosen = [x for _, _, x in sorted(turns, key=lambda t: t[:2])[:limit]]
            for x in chosen:
                x.owed, x.due_at = x.owed._replace(attempts=x.owed.attempts + 1), now + hold
            return [x.owed for x in chosen]

    def settle(self, ends: Sequence[NoticeEnd]) -> int:
        with self._db.transaction("settle_notices") as now:
            count = 0
            for end in ends:
                row = self._row(end.id)
                if row is None or row.state != "pending" or row.owed.attempts != end.attempts:
                    continue
                count += 1
                row.error = end.error
                if end.delivered:
                    row.state = "delivered"
                elif end.retry is None:
                    row.state = "given_up"
                else:
                    row.due_at = now + end.retry
            return count

    def _row(self, notice: UUID) -> NoticeRow | None:
        return next((x for x in self._db.notices if x.owed.id == notice), None)
