"""Which slots of a job should have been decided on by now, and which of them were not. Pure.

The schedule says so, and not what is stored of the job's next run: a next run that was lost, or
that lies wrongly ahead, keeps nobody waiting unseen. A slot is decided on when there is a launch of
it, or a skip that holds it, whatever the reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId, TenantId
from tickrail.core.plan import first_due, from_completion, spread
from tickrail.core.ports_watch import LastRun, SlotRun, WatchedJob
from tickrail.core.schedule import slot_of

MOST_SLOTS = 1000
"""So many slots of one job are looked at, the newest ones."""
_TICK = timedelta(microseconds=1)


class Wrong(StrEnum):
    """What is wrong with a job."""

    MISSING = "missing"
    ADRIFT = "adrift"
    UNREADABLE = "unreadable"


class Finding(NamedTuple):
    """A job with which something is wrong.

    Attributes:
        job: the job.
        tenant: whose it is.
        name: its name.
        wrong: slots are `missing`; it is `adrift`: its next slot will be, since it waits for a
            later instant or for none; it is `unreadable`: its plan cannot be read.
        slots: how many slots are missing.
        due_at: when the oldest of them was due; the slot that a job adrift will miss.
        next_run_at: what it waits for.
        error: why it cannot be planned.
    """

    job: JobId
    tenant: TenantId
    name: str
    wrong: Wrong
    slots: int
    due_at: datetime | None
    next_run_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class WatchRules:
    """How it is looked.

    Attributes:
        late: how long after it is due a slot may be undecided.
        look_back: how far back slots are looked at.
    """

    late: timedelta = timedelta(seconds=30)
    look_back: timedelta = timedelta(hours=1)


def range_of(w: WatchedJob, plan: Plan, now: datetime, rules: WatchRules) -> SlotRun:
    """The slots that are looked at: behind `first`, up to `last`."""
    low = max(w.since, now - rules.look_back - plan.jitter)
    if plan.starts_at is not None:
        low = max(low, plan.starts_at - _TICK)
    high = now - rules.late
    return SlotRun(low, high if plan.ends_at is None else min(high, plan.ends_at))


def expected(w: WatchedJob, plan: Plan, now: datetime, rules: WatchRules) -> Sequence[datetime]:
    """The due slots that should be decided on by now, in order; of very many the newest.

    None of an interval from the end of a launch: its slots follow from its launches
    (`after_completion`). With jitter a slot may be due later than `now`: see `missing`.
    """
    table = plan.timetable
    if table is None or from_completion(plan):
        return ()
    if plan.max_launches is not None and w.job.launched >= plan.max_launches:
        return ()
    low, high = range_of(w, plan, now, rules)
    run = table.missed(low, high, MOST_SLOTS) if low < high else None
    return () if run is None else run.newest


def missing(
    w: WatchedJob,
    plan: Plan,
    slots: Sequence[datetime],
    skipped: Sequence[SlotRun],
    due_before: datetime,
) -> Finding | None:
    """What is wrong where these slots have no launch.

    Args:
        w: the job.
        plan: its plan.
        slots: those that were not launched, in order.
        skipped: what is recorded as skipped.
        due_before: a slot that is due later than this is not late yet.
    """
    known = _Runs(skipped)
    left = [s for s in slots if not known.hold(slot_of(s))]
    dues = [s + spread(plan, w.job.id, s) for s in left]
    late = [due for due in dues if due <= due_before]
    return finding(w, Wrong.MISSING, late[0], len(late)) if late else None


class _Runs:
    """Runs of slots, to be asked for many."""

    def __init__(self, runs: Sequence[SlotRun]) -> None:
        ordered = sorted(runs)
        self._firsts = [r.first for r in ordered]
        self._reach = list(accumulate((r.last for r in ordered), max))

    def hold(self, slot: datetime) -> bool:
        """Whether a slot lies in one of them."""
        before = bisect_right(self._firsts, slot)
        return before > 0 and slot <= self._reach[before - 1]


def overdue(w: WatchedJob, now: datetime, rules: WatchRules) -> Finding | None:
    """A slot that a job waits for and that is older than those which are looked at."""
    due = w.next_run_at
    if due is None or max(due, w.since) > now - rules.late:
        return None
    return finding(w, Wrong.MISSING, due, 1)


def unlaunched(slots: Sequence[datetime], launched: Collection[datetime]) -> list[datetime]:
    """The slots without a launch."""
    return [s for s in slots if slot_of(s) not in launched]


def after_completion(
    w: WatchedJob, plan: Plan, last: LastRun, now: datetime, rules: WatchRules
) -> Finding | None:
    """The slot that should have followed the end of a job's last launch, where it is late."""
    if last.is_open or (plan.max_launches is not None and w.job.launched >= plan.max_launches):
        return None
    since = w.since if last.at is None else max(w.since, last.at)
    due = first_due(plan, w.job.id, since)
    if due is None or due > now - rules.late:
        return None
    return finding(w, Wrong.MISSING, due, 1)


def adrift(w: WatchedJob, plan: Plan, now: datetime, tzdata: str) -> Finding | None:
    """Whether a job waits for a later instant than its next slot's, or for none.

    A job that cannot be planned is tried again a minute later, and one whose next run was computed
    by other time zone data than this program's waits for another instant rightly.
    """
    if plan.schedule is None or from_completion(plan) or w.error is not None:
        return None
    if w.next_run_at is None:
        return finding(w, Wrong.ADRIFT, first_due(plan, w.job.id, now), 0)
    if w.next_run_at <= now or w.tzdata != tzdata:
        return None
    due = first_due(plan, w.job.id, max(now, w.job.last_slot or now))
    return None if due is None or w.next_run_at <= due else finding(w, Wrong.ADRIFT, due, 0)


def finding(w: WatchedJob, wrong: Wrong, due_at: datetime | None, slots: int) -> Finding:
    """What is wrong with a job."""
    return Finding(w.job.id, w.job.tenant, w.name, wrong, slots, due_at, w.next_run_at, w.error)
