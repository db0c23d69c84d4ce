"""What a tick decides for one job: slots to launch, slots to skip and why, when to look again.

Pure: everything is an argument. A slot's due instant is what the job waits for; its scheduled
instant is the whole second of it and names the launch (`core.ids.launch_id`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.policies import CatchUpOrder, MisfirePolicy, Overlap
from tickrail.core.schedule import Missed, Schedule, missed, next_after, slot_of
from tickrail.core.states import State


class SkipReason(StrEnum):
    """Why a slot was not launched."""

    OVERLAP = "overlap"
    MISFIRE = "misfire"
    PAUSED = "paused"
    DEADLINE = "deadline"
    TOO_OLD = "too_old"


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """One slot to launch."""

    scheduled_at: datetime
    due_at: datetime
    state: State = State.DUE


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run of slots not launched: first and last scheduled instant, and how many."""

    reason: SkipReason
    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write: launches, skips, what to ask of open launches, when the job is due again.

    `wake_at` None: no slot will ever come (the job is finished).
    """

    launches: Sequence[PlannedLaunch] = ()
    skipped: Sequence[Skipped] = ()
    wake_at: datetime | None = None
    last_slot: datetime | None = None
    cancel_open: bool = False
    terminate_open: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """A due job as the tick finds it.

    `due_at` is the due instant the job waits for; `open_launches` are the held, due, queued and
    running launches of the job, `held` the held ones among them; `oldest` is the oldest instant
    that the history still has room for.
    """

    job: JobId
    due_at: datetime
    launched: int = 0
    open_launches: int = 0
    held: int = 0
    last_slot: datetime | None = None
    oldest: datetime | None = None


MAX_BUFFERED = 1000
"""Held launches of one job at most; further slots are skipped with reason `overlap`."""

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


def first_due(plan: Plan, job: JobId, after: datetime) -> datetime | None:
    """The first due instant of a slot strictly after `after`, between starts_at and ends_at."""
    if plan.schedule is None:
        return None
    if plan.starts_at is not None:
        after = max(after, plan.starts_at - _TICK)
    slot = next_after(plan.schedule, after)
    if slot is None or (plan.ends_at is not None and slot > plan.ends_at):
        return None
    return slot + spread(plan, job, slot)


def spread(plan: Plan, job: JobId, slot: datetime) -> timedelta:
    """How much later than its slot a job is due: stable for each slot, never past the next one."""
    if not plan.jitter or plan.schedule is None:
        return timedelta(0)
    room = plan.jitter
    following = next_after(plan.schedule, slot)
    if following is not None:
        room = min(room, following - slot - _SECOND)
    seed = hashlib.sha256(job.bytes + int(slot.timestamp()).to_bytes(8, "big", signed=True))
    share = int.from_bytes(seed.digest()[:6], "big") / (1 << 48)
    return timedelta(seconds=int(max(room, timedelta(0)).total_seconds() * share))


def plan_job(plan: Plan, s: Situation, now: datetime, batch: int = 100) -> Decision:
    """Decide for one due job.

    A slot late by less than the grace time (and the jitter) is on time and launched. Older ones are
    misfires: `skip` records them; `fire_once` launches the latest of them unless an on-time slot
    is due with it; `fire_all` launches them within count, age, order and rate and records the rest.

    At most `batch` on-time slots are taken at once; `wake_at` is then in the past and the next
    tick goes on from there.
    """
    if plan.schedule is None:
        return Decision(last_slot=s.last_slot)
    end = now if plan.ends_at is None else min(now, plan.ends_at)
    on_time = now - plan.misfire.grace - plan.jitter + _TICK
    cursor = _slot_waited_for(plan.schedule, plan, s.due_at) - _TICK
    skips: list[Skipped] = []
    chosen: list[tuple[datetime, datetime]] = []

    if s.oldest is not None:
        cursor = _skip_all(
            plan.schedule, cursor, min(s.oldest - _TICK, end), SkipReason.TOO_OLD, skips
        )
    fresh = _on_time(plan, s.job, max(cursor, on_time - _TICK), end, now, batch)
    late = missed(plan.schedule, cursor, min(on_time - _TICK, end), 1)
    if late is not None:
        cursor = late.last
        chosen += _misfires(plan, late, now, bool(fresh), skips)
    if fresh:
        cursor = fresh[-1][0]
        chosen += fresh
    if plan.max_launches is not None:
        chosen = chosen[: max(0, plan.max_launches - s.launched)]
    launches, ask = _overlap(plan, s, chosen, skips)
    count = s.launched + len(launches)
    over = plan.max_launches is not None and count >= plan.max_launches
    handled = [slot_of(cursor)] if chosen or skips else []
    return Decision(
        launches=tuple(launches),
        skipped=tuple(skips),
        wake_at=None if over else first_due(plan, s.job, cursor),
        last_slot=max([*handled, *([s.last_slot] if s.last_slot else [])], default=None),
        cancel_open=ask is Overlap.CANCEL_OTHER,
        terminate_open=ask is Overlap.TERMINATE_OTHER,
    )


def plan_resume(plan: Plan, s: Situation, now: datetime) -> Decision:
    """A paused job goes on; slots that passed meanwhile are recorded as skipped."""
    skips: list[Skipped] = []
    cursor = now
    if plan.schedule is not None:
        start = _slot_waited_for(plan.schedule, plan, s.due_at) - _TICK
        end = now if plan.ends_at is None else min(now, plan.ends_at)
        cursor = max(now, _skip_all(plan.schedule, start, end, SkipReason.PAUSED, skips))
    return Decision(
        skipped=tuple(skips),
        wake_at=first_due(plan, s.job, cursor),
        last_slot=skips[-1].last if skips else s.last_slot,
    )


def _slot_waited_for(schedule: Schedule, plan: Plan, due_at: datetime) -> datetime:
    """The slot whose due instant this is: without jitter, itself."""
    if not plan.jitter:
        return due_at
    slot, following = due_at, next_after(schedule, due_at - plan.jitter - _SECOND)
    while following is not None and following <= due_at:
        slot, following = following, next_after(schedule, following)
    return slot


def _skip_all(
    schedule: Schedule, after: datetime, until: datetime, reason: SkipReason, skips: list[Skipped]
) -> datetime:
    """Record every slot up to `until` as skipped; where to go on from."""
    run = missed(schedule, after, until, 1)
    if run is None:
        return after
    skips.append(Skipped(reason, slot_of(run.first), slot_of(run.last), run.count))
    return run.last


def _on_time(
    plan: Plan, job: JobId, after: datetime, end: datetime, now: datetime, batch: int
) -> list[tuple[datetime, datetime]]:
    """Slots with their due instants that are due and not late, the oldest first."""
    found: list[tuple[datetime, datetime]] = []
    slot = next_after(plan.schedule, after) if plan.schedule else None
    while slot is not None and slot <= end and len(found) < batch:
        due = slot + spread(plan, job, slot)
        if due > now:
            break
        found.append((slot, due))
        slot = next_after(plan.schedule, slot) if plan.schedule else None
    return found


def _misfires(
    plan: Plan,
    late: Missed,
    now: datetime,
    on_time_due: bool,
    skips: list[Skipped],
) -> list[tuple[datetime, datetime]]:
    """What the misfire policy launches of the late slots; the rest is recorded."""
    schedule, policy = plan.schedule, plan.misfire.policy
    if schedule is None:
        return []
    before = late.first - _TICK
    if policy is MisfirePolicy.SKIP or (policy is MisfirePolicy.FIRE_ONCE and on_time_due):
        _skip_all(schedule, before, late.last, SkipReason.MISFIRE, skips)
        return []
    if policy is MisfirePolicy.FIRE_ONCE:
        _skip_all(schedule, before, late.last - _TICK, SkipReason.MISFIRE, skips)
        return [(late.last, now)]
    rules = plan.misfire
    edge = max(before, min(late.last, now - rules.max_age - _TICK))
    start = _skip_all(schedule, before, edge, SkipReason.MISFIRE, skips)
    young = missed(schedule, max(edge, start), late.last, rules.max_count)
    if young is None:
        return []
    if rules.order is CatchUpOrder.OLDEST:
        kept = list(young.oldest)
        _skip_all(schedule, kept[-1], late.last, SkipReason.MISFIRE, skips)
    else:
        kept = list(young.newest)
        _skip_all(schedule, max(edge, start), kept[0] - _TICK, SkipReason.MISFIRE, skips)
        kept.reverse()
    step = timedelta(minutes=1) / rules.per_minute
    return [(slot, now + i * step) for i, slot in enumerate(kept)]


def _overlap(
    plan: Plan, s: Situation, chosen: Sequence[tuple[datetime, datetime]], skips: list[Skipped]
) -> tuple[list[PlannedLaunch], Overlap | None]:
    """Apply the overlap policy: the launches, and what to ask of the open ones."""
    policy = plan.overlap
    if policy is Overlap.ALLOW or not chosen:
        return [_launch(c) for c in chosen], None
    if policy in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER):
        _overlapped(chosen[:-1], skips)
        others = s.open_launches > 0
        held = others and policy is Overlap.CANCEL_OTHER
        new = _launch(chosen[-1], State.HELD if held else State.DUE)
        return [new], policy if others else None
    room = {Overlap.SKIP: 0, Overlap.BUFFER_ONE: 1, Overlap.BUFFER_ALL: MAX_BUFFERED}[policy]
    room = max(0, room - s.held)
    launches, rest = [], list(chosen)
    if s.open_launches == 0:
        launches.append(_launch(rest.pop(0)))
    launches += [_launch(c, State.HELD) for c in rest[:room]]
    _overlapped(rest[room:], skips)
    return launches, None


def _overlapped(slots: Sequence[tuple[datetime, datetime]], skips: list[Skipped]) -> None:
    if slots:
        skips.append(
            Skipped(SkipReason.OVERLAP, slot_of(slots[0][0]), slot_of(slots[-1][0]), len(slots))
        )


def _launch(slot: tuple[datetime, datetime], state: State = State.DUE) -> PlannedLaunch:
    return PlannedLaunch(slot_of(slot[0]), slot[1], state)
