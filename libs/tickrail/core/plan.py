"""What a tick decides for one job: slots to launch, slots to skip and why, when to look again.

Pure: everything is an argument. A slot's due instant is what the job waits for; its scheduled
instant is the whole second of it and names the launch (`core.ids.launch_id`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from tickrail.core.catch_up import CatchUp
from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.policies import CatchUpOrder, Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import At, Every, MeasuredFrom, Missed, slot_of
from tickrail.core.states import State
from tickrail.core.timetable import Timetable


class SkipReason(StrEnum):
    """Why a slot was not launched."""

    OVERLAP = "overlap"
    MISFIRE = "misfire"
    PAUSED = "paused"
    EXCLUDED = "excluded"
    TOO_OLD = "too_old"
    BY_HAND = "skipped_by_hand"
    QUOTA = "quota"


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

    `wake_at` None: no slot will ever come (the job is finished), unless the job `awaits` the end
    of a launch, from which its next slot is measured. `last_slot`: up to where slots are decided
    on. `by_hand`: how many of the slots that were to be left out by hand are dealt with.
    """

    launches: Sequence[PlannedLaunch] = ()
    skipped: Sequence[Skipped] = ()
    wake_at: datetime | None = None
    last_slot: datetime | None = None
    cancel_open: bool = False
    terminate_open: bool = False
    awaits: bool = False
    by_hand: int = 0


@dataclass(frozen=True, slots=True)
class Situation:
    """A due job as the tick finds it.

    `due_at` is the due instant the job waits for; `open_launches` are the held, due, queued and
    running launches of the job, `held` the held ones among them, `backfilled` those of backfills;
    `last_slot` is up to where slots are decided on; `oldest` is the oldest instant that the history
    still has room for; `skip_next` so many slots are to be left out by hand.
    """

    job: JobId
    due_at: datetime
    launched: int = 0
    open_launches: int = 0
    held: int = 0
    last_slot: datetime | None = None
    oldest: datetime | None = None
    backfilled: int = 0
    skip_next: int = 0
    catch_up: CatchUp | None = None


MAX_BUFFERED = 1000
"""Held launches of one job at most; further slots are skipped with reason `overlap`."""

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


def first_due(plan: Plan, job: JobId, after: datetime) -> datetime | None:
    """The first due instant of a slot strictly after `after`, between starts_at and ends_at."""
    table = plan.timetable
    if table is None:
        return None
    if plan.starts_at is not None:
        after = max(after, plan.starts_at - _TICK)
    slot = table.next_after(after)
    if slot is None or (plan.ends_at is not None and slot > plan.ends_at):
        return None
    return slot + spread(plan, job, slot)


def spread(plan: Plan, job: JobId, slot: datetime) -> timedelta:
    """How much later than its slot a job is due: stable for each slot.

    Never past the next slot, nor past the allowed time that the slot lies in.
    """
    table = plan.timetable
    if not plan.jitter or table is None:
        return timedelta(0)
    room = min(plan.jitter, table.allowed_until(slot) - slot - _SECOND)
    following = table.next_after(slot)
    if following is not None:
        room = min(room, following - slot - _SECOND)
    seed = hashlib.sha256(job.bytes + int(slot.timestamp()).to_bytes(8, "big", signed=True))
    share = int.from_bytes(seed.digest()[:6], "big") / (1 << 48)
    return timedelta(seconds=int(max(room, timedelta(0)).total_seconds() * share))


def from_completion(plan: Plan) -> bool:
    """Whether each slot of the job is measured from the end of the launch before."""
    schedule = plan.schedule
    return isinstance(schedule, Every) and schedule.measured_from is MeasuredFrom.COMPLETION


def waiting(plan: Plan, due_at: datetime) -> Plan:
    """The plan as it stands while the job waits for a due instant.

    An interval from the end of a launch does not tell its own slots: it waits for this one alone.
    """
    if not from_completion(plan):
        return plan
    return replace(plan, schedule=At(due_at), jitter=timedelta(0))


def plan_job(plan: Plan, s: Situation, now: datetime, batch: int = 100) -> Decision:
    """Decide for one due job.

    A slot late by less than the grace time (and the jitter) is on time and launched. Older ones are
    misfires: `skip` records them; `fire_once` launches the latest of them unless an on-time slot
    is due with it; `fire_all` launches them within count, age, order and rate and records the rest.

    At most `batch` on-time slots are taken at once; `wake_at` is then in the past and the next
    tick goes on from there.
    """
    whole, plan = plan, waiting(plan, s.due_at)
    table = plan.timetable
    left = batch if plan.max_launches is None else plan.max_launches - s.launched
    if table is None or left <= 0:
        return Decision(last_slot=s.last_slot)
    end = now if plan.ends_at is None else min(now, plan.ends_at)
    on_time = now - plan.misfire.grace - plan.jitter + _TICK
    if s.catch_up is not None:
        on_time = max(on_time, s.catch_up.until + _TICK)
    cursor = begin = slot_waited_for(table, plan, s.due_at) - _TICK
    skips: list[Skipped] = []
    chosen: list[tuple[datetime, datetime]] = []
    caught_up = 0

    if s.oldest is not None:
        cursor = _skip_all(table, cursor, min(s.oldest - _TICK, end), SkipReason.TOO_OLD, skips)
    cursor, by_hand = _skip_by_hand(table, cursor, end, s.skip_next, skips)
    fresh = _on_time(plan, s.job, max(cursor, on_time - _TICK), end, now, min(batch, left))
    late = table.missed(cursor, min(on_time - _TICK, end), 1)
    if late is not None:
        cursor = late.last
        rules = plan.misfire if s.catch_up is None else s.catch_up.rules
        if plan.max_launches is not None:
            rules = replace(rules, max_count=min(rules.max_count, left))
        chosen += _misfires(table, rules, late, now, bool(fresh), skips)
        caught_up = len(chosen) if rules.policy is MisfirePolicy.FIRE_ALL else 0
        if plan.max_launches is not None:
            fresh = fresh[: left - len(chosen)]
    if fresh:
        cursor = fresh[-1][0]
        chosen += fresh
    launches, ask = _overlap(plan, s, chosen, caught_up, skips)
    count = s.launched + len(launches)
    over = plan.max_launches is not None and count >= plan.max_launches
    handled = [slot_of(cursor)] if chosen or skips else []
    wake_at = None if over else first_due(plan, s.job, cursor)
    awaits = False
    if from_completion(whole) and wake_at is None and not over:
        # The next slot follows the end of what is open now; where nothing is, this moment.
        awaits = bool(launches) or s.open_launches > 0
        wake_at = None if awaits else first_due(whole, s.job, now)
    edge = cursor if over or (wake_at is not None and wake_at <= now) else end
    handled += _skip_excluded(table, s, begin, edge, skips)
    return Decision(
        launches=tuple(launches),
        skipped=tuple(skips),
        wake_at=wake_at,
        last_slot=max([*handled, *([s.last_slot] if s.last_slot else [])], default=None),
        cancel_open=ask is Overlap.CANCEL_OTHER,
        terminate_open=ask is Overlap.TERMINATE_OTHER,
        awaits=awaits,
        by_hand=by_hand,
    )


def plan_resume(plan: Plan, s: Situation, now: datetime) -> Decision:
    """A paused job goes on; slots that passed meanwhile are recorded as skipped.

    `now` is the last instant of the pause. Slots after it are planned as of any job, so those of a
    pause that ended before anyone could look are on time, or misfires.
    """
    skips: list[Skipped] = []
    cursor = now
    whole, plan = plan, waiting(plan, s.due_at)
    table = plan.timetable
    if table is not None:
        begin = slot_waited_for(table, plan, s.due_at) - _TICK
        end = now if plan.ends_at is None else min(now, plan.ends_at)
        cursor = max(now, _skip_all(table, begin, end, SkipReason.PAUSED, skips))
        _skip_excluded(table, s, begin, end, skips)
    return Decision(
        skipped=tuple(skips),
        wake_at=first_due(whole if s.due_at <= now else plan, s.job, cursor),
        last_slot=max((x.last for x in skips), default=s.last_slot),
    )


def within_quota(plan: Plan, s: Situation, decision: Decision, room: int) -> Decision:
    """The decision with as many launches as the tenant's quotas leave room for, the first ones.

    The slots of the others are recorded as skipped. A launch that is not made stops no other one,
    and does not count towards `max_launches`.
    """
    kept, over = decision.launches[:room], decision.launches[room:]
    if not over:
        return decision
    skips = list(decision.skipped)
    _skip_each(SkipReason.QUOTA, plan, [x.scheduled_at for x in over], skips)
    wake_at, awaits = decision.wake_at, decision.awaits
    if wake_at is None and not awaits and plan.max_launches is not None and decision.last_slot:
        # It was to be finished by a launch that is not made now.
        awaits = from_completion(plan)
        wake_at = None if awaits else first_due(plan, s.job, decision.last_slot + _SECOND - _TICK)
    return replace(
        decision,
        launches=kept,
        skipped=tuple(skips),
        wake_at=wake_at,
        awaits=awaits,
        cancel_open=decision.cancel_open and bool(kept),
        terminate_open=decision.terminate_open and bool(kept),
    )


def plan_completion(plan: Plan, s: Situation, ended_at: datetime) -> Decision:
    """The launch that a job awaited has ended: its next slot is measured from there.

    By a clock that went back it may have ended before its slot; the next slot comes after that one.
    """
    after = ended_at if s.last_slot is None else max(ended_at, s.last_slot)
    return Decision(wake_at=first_due(plan, s.job, after), last_slot=s.last_slot)


def slot_waited_for(table: Timetable, plan: Plan, due_at: datetime) -> datetime:
    """The slot whose due instant this is: without jitter, itself."""
    if not plan.jitter:
        return due_at
    slot, following = due_at, table.next_after(due_at - plan.jitter - _SECOND)
    while following is not None and following <= due_at:
        slot, following = following, table.next_after(following)
    return slot


def _skip_all(
    table: Timetable, after: datetime, until: datetime, reason: SkipReason, skips: list[Skipped]
) -> datetime:
    """Record every slot up to `until` as skipped; where to go on from."""
    run = table.missed(after, until, 1)
    if run is None:
        return after
    skips.append(_skipped(reason, run))
    return run.last


def _skip_by_hand(
    table: Timetable, after: datetime, until: datetime, wanted: int, skips: list[Skipped]
) -> tuple[datetime, int]:
    """Leave out the next slots that the job's owner named; where to go on from, and how many."""
    run = table.missed(after, until, wanted) if wanted > 0 else None
    if run is None:
        return after, 0
    named = run.oldest[:wanted]
    skips.append(Skipped(SkipReason.BY_HAND, slot_of(named[0]), slot_of(named[-1]), len(named)))
    return named[-1], len(named)


def _skip_excluded(
    table: Timetable, s: Situation, begin: datetime, until: datetime, skips: list[Skipped]
) -> list[datetime]:
    """Record what calendars left out since slots were last decided on; the last of them."""
    after = begin if s.last_slot is None else s.last_slot
    if s.oldest is not None:
        after = max(after, s.oldest - _TICK)
    run = table.excluded(after, until, 1)
    if run is None:
        return []
    skips.append(_skipped(SkipReason.EXCLUDED, run))
    return [slot_of(run.last)]


def _skipped(reason: SkipReason, run: Missed) -> Skipped:
    return Skipped(reason, slot_of(run.first), slot_of(run.last), run.count)


def _on_time(
    plan: Plan, job: JobId, after: datetime, end: datetime, now: datetime, batch: int
) -> list[tuple[datetime, datetime]]:
    """Slots with their due instants that are due and not late, the oldest first."""
    found: list[tuple[datetime, datetime]] = []
    table = plan.timetable
    slot = table.next_after(after) if table else None
    while table and slot is not None and slot <= end and len(found) < batch:
        due = slot + spread(plan, job, slot)
        if due > now:
            break
        found.append((slot, due))
        slot = table.next_after(slot)
    return found


def _misfires(
    table: Timetable,
    rules: Misfire,
    late: Missed,
    now: datetime,
    on_time_due: bool,
    skips: list[Skipped],
) -> list[tuple[datetime, datetime]]:
    """What the misfire policy launches of the late slots; the rest is recorded."""
    policy = rules.policy
    before = late.first - _TICK
    if policy is MisfirePolicy.SKIP or (policy is MisfirePolicy.FIRE_ONCE and on_time_due):
        _skip_all(table, before, late.last, SkipReason.MISFIRE, skips)
        return []
    if policy is MisfirePolicy.FIRE_ONCE:
        _skip_all(table, before, late.last - _TICK, SkipReason.MISFIRE, skips)
        return [(late.last, now)]
    edge = max(before, min(late.last, now - rules.max_age - _TICK))
    start = _skip_all(table, before, edge, SkipReason.MISFIRE, skips)
    young = table.missed(max(edge, start), late.last, rules.max_count)
    if young is None:
        return []
    if rules.order is CatchUpOrder.OLDEST:
        kept = list(young.oldest)
        _skip_all(table, kept[-1], late.last, SkipReason.MISFIRE, skips)
    else:
        kept = list(young.newest)
        _skip_all(table, max(edge, start), kept[0] - _TICK, SkipReason.MISFIRE, skips)
        kept.reverse()
    step = timedelta(minutes=1) / rules.per_minute
    return [(slot, now + i * step) for i, slot in enumerate(kept)]


def _overlap(
    plan: Plan,
    s: Situation,
    chosen: Sequence[tuple[datetime, datetime]],
    caught_up: int,
    skips: list[Skipped],
) -> tuple[list[PlannedLaunch], Overlap | None]:
    """Apply the overlap policy: the launches, and what to ask of the open ones.

    The first `caught_up` of the chosen slots are those that a catch-up launches one and all: where
    the policy keeps launches apart they wait for one another and are not lost to it.
    """
    policy = plan.overlap
    if policy is Overlap.ALLOW or not chosen:
        return [_launch(c) for c in chosen], None
    others = s.open_launches > 0
    # If only backfills are in the way, a live slot waits for them and is not lost to them.
    waits = s.open_launches == s.backfilled
    if policy in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER):
        _overlapped(plan, chosen[:-1], skips)
        held = others and (waits or policy is Overlap.CANCEL_OTHER)
        new = _launch(chosen[-1], State.HELD if held else State.DUE)
        return [new], policy if others and not waits else None
    launches, rest = [], list(chosen)
    if not others:
        launches.append(_launch(rest.pop(0)))
        caught_up = max(0, caught_up - 1)
    room = {Overlap.SKIP: 0, Overlap.BUFFER_ONE: 1, Overlap.BUFFER_ALL: MAX_BUFFERED}[policy]
    room = max(0, room - s.held)
    if others and waits and not caught_up:
        room = max(room, 1)
    room = min(caught_up + room, MAX_BUFFERED - s.held)
    launches += [_launch(c, State.HELD) for c in rest[:room]]
    _overlapped(plan, rest[room:], skips)
    return launches, None


def _overlapped(
    plan: Plan, slots: Sequence[tuple[datetime, datetime]], skips: list[Skipped]
) -> None:
    _skip_each(SkipReason.OVERLAP, plan, [slot for slot, _ in slots], skips)


def _skip_each(
    reason: SkipReason, plan: Plan, slots: Sequence[datetime], skips: list[Skipped]
) -> None:
    """Record slots as skipped, in runs of neighbours: others may lie between them."""
    table = plan.timetable
    run: list[datetime] = []
    for slot in sorted(slots):
        if run and table is not None and table.next_after(run[-1]) != slot:
            skips.append(_run_of(reason, run))
            run = []
        run.append(slot)
    if run:
        skips.append(_run_of(reason, run))


def _run_of(reason: SkipReason, slots: Sequence[datetime]) -> Skipped:
    return Skipped(reason, slot_of(slots[0]), slot_of(slots[-1]), len(slots))


def _launch(slot: tuple[datetime, datetime], state: State = State.DUE) -> PlannedLaunch:
    return PlannedLaunch(slot_of(slot[0]), slot[1], state)
