"""Any history of one job on the stepped installation: its slots are launched or skipped, each once.

Ticks, long stops, clocks that are set, pauses with each way to go on, edits, slots left out by
hand, runs by hand, changed calendars, a delete: the real use cases and the real tick on the memory
tables. After each step the records are held against the schedule, slot by slot, and the ledger
against the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.memory_api import MemoryApi, MemoryTransaction
from tests.support.memory_tables import LaunchRow, SkipRow
from tests.support.stepped import PARTITIONS, Stepped

from tickrail.core.definition import Plan
from tickrail.core.errors import InvalidInputError, OverlapError
from tickrail.core.ids import ORIGIN_SCHEDULE
from tickrail.core.job_filter import JobState
from tickrail.core.plan import slot_waited_for
from tickrail.core.ports_api import JobRecord
from tickrail.core.schedule import next_after
from tickrail.core.timetable import Allowance, OnExcluded
from tickrail.engine.calendars import CalendarRules, Calendars
from tickrail.engine.job_rules import EXCLUDED, JobRules, plan_of
from tickrail.engine.jobs import Jobs
from tickrail.engine.launches import Launches
from tickrail.engine.ledger import Kind, LedgerRequest, slots
from tickrail.engine.pauses import Pauses

TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
START = datetime.fromisoformat("2026-03-28T12:00:00+00:00")  # Berlin's clocks change that night
SCHEDULES: list[Any] = [
    {"cron": "*/20 * * * *"},
    {"cron": "30 * * * *", "time_zone": "Europe/Berlin"},
    {"cron": "30 2,14 * * *", "time_zone": "Europe/Berlin", "gap": "shift", "fold": "both"},
    {"every": "47m", "anchor": "2026-03-01T00:00:00Z"},
    {"calendar": {"unit": "day", "at": "02:15"}, "time_zone": "Europe/Berlin"},
    {"any_of": [{"cron": "0 * * * *"}, {"every": "45m", "anchor": "2026-03-28T00:00:00Z"}]},
]
MISFIRES: list[Any] = [
    {"policy": "fire_once", "grace": "1m"},
    {"policy": "skip", "grace": "30m"},
    {"policy": "fire_all", "grace": "1s", "max_count": 2, "order": "newest"},
    {"policy": "fire_all", "grace": "1m", "max_count": 3, "max_age": "5h"},
]
CALENDARS: list[Any] = [
    {"windows": [{"from": "03:00", "to": "05:00"}], "time_zone": "Europe/Berlin"},
    {"weekdays": ["sun"], "time_zone": "Europe/Berlin"},
    {"dates": ["2026-03-29", "2026-03-31"]},
    {"windows": [{"from": "10:10", "to": "23:50"}, {"from": "02:40", "to": "03:30"}]},
]
USES: list[Any] = [
    {"exclude": ["c"], "include": [], "on_excluded": "skip"},
    {"exclude": ["c"], "include": [], "on_excluded": "next_allowed"},
]
OVERLAPS = ("allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other")
NAME = "job"


class Histories(RuleBasedStateMachine):
    """One job, from its creation on."""

    @initialize(
        schedule=st.sampled_from(SCHEDULES),
        misfire=st.sampled_from(MISFIRES),
        overlap=st.sampled_from(OVERLAPS),
        jitter=st.sampled_from(("0s", "0s", "10m")),
        use=st.sampled_from((None, None, *USES)),
        most=st.sampled_from((None, None, 6)),
    )
    def create(
        self,
        schedule: Any,
        misfire: Any,
        overlap: str,
        jitter: str,
        use: Any,
        most: int | None,
    ) -> None:
        self.world = Stepped()
        self.clock = self.world.clock
        self.clock.set_now(START)
        self.api = MemoryApi(self.world.db)
        rules = JobRules(PARTITIONS)
        self.jobs, self.pauses = Jobs(rules, self.clock), Pauses(rules)
        self.hand = Launches(self.clock)
        self.calendars = Calendars(
            CalendarRules(rules.history, lambda _text: {"events": []}), self.clock
        )
        self.put_calendar(CALENDARS[0])
        document = {
            "name": NAME,
            "schedule": schedule,
            "misfire": misfire,
            "overlap": overlap,
            "jitter": jitter,
            "max_launches": most,
            "calendars": use,
            "target": {"noop": {}},
        }
        draft = self.jobs.draft(document)
        with self.api.transaction() as tx:
            self.job = self.jobs.create(tx, draft).id
        self.since = START
        self.accounted: Counter[datetime] = Counter()
        self.left_out: Counter[datetime] = Counter()
        self.known: set[Any] = set()

    def put_calendar(self, document: Any) -> None:
        draft = self.calendars.draft("c", document)
        with self.api.transaction() as tx:
            self.calendars.put(tx, draft)

    # --- what the checks look at --------------------------------------------------------------

    def record(self) -> JobRecord:
        with self.api.transaction() as tx:
            found = tx.jobs.find(self.job)
        assert found is not None
        return found

    def plan(self) -> Plan:
        with self.api.transaction() as tx:
            found = tx.jobs.find(self.job)
            assert found is not None
            return plan_of(tx, found)

    @contextmanager
    def change(self) -> Iterator[MemoryTransaction]:
        """A use case; what it records is of the plan as it was before."""
        before = self.plan()
        with self.api.transaction() as tx:
            yield tx
        self.take_in(before)

    def take_in(self, plan: Plan) -> None:
        """Account for the records that are new, by the plan that they were made with."""
        db = self.world.db
        rows: list[LaunchRow | SkipRow] = [
            x for x in db.launches.values() if x.origin == ORIGIN_SCHEDULE
        ]
        rows += db.skips.values()
        for row in rows:
            key = row.id if isinstance(row, LaunchRow) else (row.first, row.reason)
            if key in self.known:
                continue
            self.known.add(key)
            if isinstance(row, LaunchRow):
                self.accounted[row.scheduled_at] += 1
                continue
            excluded = row.reason == EXCLUDED
            found = between(plan, row.first - TICK, row.last, excluded=excluded)
            assert len(found) == row.count, row
            (self.left_out if excluded else self.accounted).update(found)

    def decided_to(self) -> datetime:
        """Up to where the slots of the present plan must be accounted for."""
        job, plan = self.record(), self.plan()
        table = plan.timetable
        assert table is not None
        if job.next_run_at is None:
            return max(self.accounted, default=self.since)
        return slot_waited_for(table, plan, job.next_run_at) - TICK

    @invariant()
    def each_slot_once(self) -> None:
        assert max(self.accounted.values(), default=1) == 1
        assert max(self.left_out.values(), default=1) == 1
        assert not self.accounted.keys() & self.left_out.keys()

    @invariant()
    def none_is_lost(self) -> None:
        if self.record().state is JobState.DELETED:
            return
        plan, end = self.plan(), self.decided_to()
        for slot in between(plan, self.since, end):
            assert slot in self.accounted, f"{slot} is lost"
        edge = self.record().last_slot_at
        if edge is not None:
            for slot in between(plan, self.since, min(edge, end), excluded=True):
                assert slot in self.left_out, f"{slot} was left out without a word"

    @invariant()
    def the_ledger_says_the_same(self) -> None:
        job = self.record()
        if job.state is JobState.DELETED:
            return
        now = self.clock.now()
        request = LedgerRequest(self.since + TICK, now + timedelta(hours=5), True, 10_000)
        with self.api.transaction() as tx:
            rows, more = slots(tx, job, request)
        assert not more
        instants = [r.at for r in rows]
        assert len(set(instants)) == len(instants)
        assert instants == sorted(instants)
        decided = {t for t in (*self.accounted, *self.left_out) if t > self.since}
        decided = {t for t in decided if t < now + timedelta(hours=5)}
        shown = {r.at for r in rows if r.kind is not Kind.UPCOMING and r.count == 1}
        assert decided <= shown
        launched = {r.at for r in rows if r.kind is Kind.LAUNCHED}
        own = {
            x.scheduled_at
            for x in self.world.db.launches.values()
            if x.origin == ORIGIN_SCHEDULE and x.scheduled_at > self.since
        }
        assert launched == {t for t in own if t < now + timedelta(hours=5)}

    # --- what happens -------------------------------------------------------------------------

    @rule(minutes=st.sampled_from((1, 7, 20, 60, 300, 2000)), seconds=st.integers(0, 59))
    def time_passes_and_it_ticks(self, minutes: int, seconds: int) -> None:
        self.clock.advance(minutes * 60 + seconds)
        self.tick()

    @rule(times=st.integers(2, 12))
    def it_ticks_each_minute(self, times: int) -> None:
        for _ in range(times):
            self.clock.advance(60)
            self.tick()

    def tick(self) -> None:
        plan = self.plan()
        self.world.ticker.resume(self.world.owned)
        for _ in range(50):
            if not self.world.tick().jobs:
                break
        else:
            raise AssertionError("the job stays due")
        self.take_in(plan)
        self.world.sweep()

    @rule(minutes=st.sampled_from((3, 45, 600, 4000)))
    def it_stands_still(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)

    @rule(seconds=st.sampled_from((-20_000, -3600, -90, -5, 5, 90, 3600)))
    def the_clock_is_set(self, seconds: int) -> None:
        self.clock.jump(seconds)

    @rule()
    def launches_run_to_their_end(self) -> None:
        self.world.relay(2)
        worker = self.world.worker()
        worker.take()
        for run in list(worker.executor.running):
            worker.executor.end(run)
        worker.finish()

    def may_change(self) -> bool:
        return self.record().state in (JobState.ACTIVE, JobState.PAUSED)

    @precondition(may_change)
    @rule(minutes=st.sampled_from((None, None, 10, 400)))
    def pause(self, minutes: int | None) -> None:
        until = None if minutes is None else self.clock.now() + timedelta(minutes=minutes)
        with self.change() as tx:
            self.pauses.pause(tx, NAME, {"until": None if until is None else until.isoformat()})

    @precondition(lambda self: self.record().state is JobState.PAUSED)
    @rule(catch_up=st.sampled_from(("none", "policy", {"max_count": 2}, {"order": "newest"})))
    def resume(self, catch_up: Any) -> None:
        with self.change() as tx:
            self.pauses.resume(tx, NAME, {"catch_up": catch_up})

    @precondition(may_change)
    @rule(n=st.integers(0, 3))
    def skip_next(self, n: int) -> None:
        with self.change() as tx:
            self.pauses.skip_next(tx, NAME, {"n": n})

    @precondition(may_change)
    @rule()
    def trigger(self) -> None:
        with self.change() as tx, suppress(OverlapError):
            self.hand.trigger(tx, NAME, {})

    @precondition(may_change)
    @rule(
        patch=st.one_of(
            st.sampled_from(SCHEDULES).map(lambda s: {"schedule": {**EVERY_FIELD, **s}}),
            st.sampled_from(MISFIRES).map(lambda m: {"misfire": m}),
            st.sampled_from(OVERLAPS).map(lambda o: {"overlap": o}),
            st.sampled_from(("0s", "10m")).map(lambda j: {"jitter": j}),
            st.sampled_from((None, *USES)).map(lambda use: {"calendars": use}),
        )
    )
    def edit(self, patch: Any) -> None:
        before, timing = self.record(), patch.keys() & {"schedule", "jitter", "calendars"}
        old = self.plan()
        with self.change() as tx:
            try:
                after = self.jobs.patch(tx, NAME, patch)
            except InvalidInputError:
                return
        if timing and after.version != before.version:
            now = self.clock.now()
            for slot in between(old, self.since, now):
                assert slot in self.accounted, f"{slot} was lost by an edit"
            self.since = max(now, *self.accounted, *self.left_out, self.since)

    @rule(document=st.sampled_from(CALENDARS))
    def calendar_changes(self, document: Any) -> None:
        before, old = self.plan(), self.record()
        self.put_calendar(document)
        self.take_in(before)
        uses = before.allowance is not None and old.state is not JobState.DELETED
        if uses and self.plan() != before:
            waits = self.clock.now()
            if old.next_run_at is not None and before.timetable is not None:
                waits = slot_waited_for(before.timetable, before, old.next_run_at) - TICK
            edge = min(self.clock.now(), waits)
            if before.allowance and before.allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
                edge = self.clock.now()  # what had been moved may move on, or stay with others
            self.since = max(edge, *self.accounted, *self.left_out, self.since)

    @precondition(may_change)
    @rule(sure=st.integers(0, 5))
    def delete(self, sure: int) -> None:
        if sure == 0:
            with self.change() as tx:
                self.jobs.delete(tx, self.job)
            before = len(self.accounted)
            self.clock.advance(100_000)
            self.world.tick()
            self.take_in(self.plan())
            assert len(self.accounted) == before


EVERY_FIELD = dict.fromkeys(
    ("cron", "every", "anchor", "measured_from", "calendar", "any_of", "at", "time_zone", "gap",
     "fold")
)  # fmt: skip


def between(
    plan: Plan, after: datetime, until: datetime, *, excluded: bool = False
) -> list[datetime]:
    """The slots of a plan, by its schedule and calendars, slot by slot."""
    allowance = plan.allowance
    if allowance is not None and allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
        return [] if excluded else moved(plan, allowance, after, until)
    found: list[datetime] = []
    at = None if plan.schedule is None else next_after(plan.schedule, after)
    while at is not None and at <= until and plan.schedule is not None:
        by = plan.allowance and plan.allowance.at(int(at.timestamp())).by
        if (by is not None) == excluded:
            found.append(at)
        at = next_after(plan.schedule, at)
    return found


def moved(plan: Plan, allowance: Allowance, after: datetime, until: datetime) -> list[datetime]:
    """The slots under `next_allowed`: those in forbidden time move to its end."""
    found = set()
    raw = replace(plan, allowance=None)
    for slot in between(raw, after - timedelta(days=8), until):
        second = int(slot.timestamp())
        while allowance.at(second).by is not None:
            second = allowance.at(second).end
        found.add(datetime.fromtimestamp(second, UTC))
    return sorted(t for t in found if after < t <= until)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
