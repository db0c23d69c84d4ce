"""A planner for the tests of stores: what it decides and what it was asked are plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tickrail.core.ids import JobId, TenantId, launch_id
from tickrail.core.plan import Decision, PlannedLaunch, Skipped, SkipReason
from tickrail.core.ports import (
    Calendars,
    CalendarText,
    DueJob,
    EndedJob,
    NewLaunch,
    OpenCount,
    Planned,
)
from tickrail.core.states import State


class StubPlanner:
    """A planner that launches the slot that is due, once; what it was asked is kept."""

    def __init__(self, *, state: State = State.DUE, wake_in: float | None = None) -> None:
        self.state = state
        self.wake_in = wake_in
        self.asks_open = True
        self.at_most: int | None = None
        self.skips: tuple[Skipped, ...] = ()
        self.cancel_open = self.terminate_open = False
        self.error: str | None = None
        self.origin = "schedule"
        self.jobs: list[DueJob] = []
        self.named: tuple[str, ...] = ()
        self.known: dict[tuple[TenantId, str], CalendarText] = {}
        self.ended: list[EndedJob] = []
        self.awaits = False
        self.by_hand = 0
        self.opened: dict[JobId, OpenCount] = {}
        self.rooms: list[int | None] = []
        self.inside: Callable[[], None] = lambda: None

    def needs_open(self, job: DueJob) -> bool:
        del job
        return self.asks_open

    def calendars(self, job: DueJob) -> Sequence[str]:
        del job
        return self.named

    def resume(
        self, jobs: Sequence[DueJob], calendars: Calendars, now: datetime, oldest: datetime
    ) -> list[Planned]:
        del oldest
        self.jobs += jobs
        self.known.update(calendars)
        wake = None if self.wake_in is None else now + timedelta(seconds=self.wake_in)
        return [Planned(j, Decision(skipped=self.skips, wake_at=wake), []) for j in jobs]

    def complete(
        self, jobs: Sequence[EndedJob], calendars: Calendars, now: datetime
    ) -> list[Planned]:
        self.ended += jobs
        self.known.update(calendars)
        wake = None if self.wake_in is None else now + timedelta(seconds=self.wake_in)
        return [Planned(e.job, Decision(wake_at=wake), []) for e in jobs]

    def plan(
        self,
        jobs: Sequence[DueJob],
        opened: Mapping[JobId, OpenCount],
        calendars: Calendars,
        now: datetime,
        oldest: datetime,
        rooms: dict[TenantId, int],
    ) -> list[Planned]:
        self.inside()
        assert oldest < now
        jobs = jobs[: self.at_most]
        self.jobs += jobs
        self.opened.update(opened)
        self.known.update(calendars)
        return [self._within(self._planned(j, now), rooms) for j in jobs]

    def _within(self, planned: Planned, rooms: dict[TenantId, int]) -> Planned:
        """Without its launches, where its tenant has no room for them."""
        tenant = planned.job.tenant
        self.rooms.append(rooms.get(tenant))
        room = rooms.get(tenant, len(planned.launches))
        if room < len(planned.launches):
            slot = self.slot(planned.job)
            over = Skipped(SkipReason.QUOTA, slot, slot, 1)
            decision = replace(planned.decision, launches=(), skipped=(over,))
            return planned._replace(decision=decision, launches=[])
        if tenant in rooms:
            rooms[tenant] -= len(planned.launches)
        return planned

    def slot(self, job: DueJob) -> datetime:
        return job.due_at.astimezone(UTC).replace(microsecond=0)

    def _planned(self, job: DueJob, now: datetime) -> Planned:
        slot = self.slot(job)
        wake = None if self.wake_in is None else now + timedelta(seconds=self.wake_in)
        launches = [] if self.error else [PlannedLaunch(slot, job.due_at, self.state)]
        decision = Decision(
            launches, self.skips, wake, slot, self.cancel_open, self.terminate_open, self.awaits,
            self.by_hand,
        )  # fmt: skip
        new = [
            NewLaunch(
                launch_id(job.id, slot, self.origin), slot, job.due_at, self.state, "default", 1,
                5, True, 30.0, None,
            )
        ]  # fmt: skip
        return Planned(job, decision, [] if self.error else new, self.error)
