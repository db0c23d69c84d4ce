"""The watchdog: every job, again and again, whether its due slots were decided on.

It works the slots out by itself, from the schedules, and asks the records. So it finds what a
scheduler never would: that none is there, or stands still; a next run that was lost or lies wrongly
ahead; a launch record that is gone. It writes nothing.

A **pass** walks over all jobs by their ids, a page in each turn. Beside it, each time, those jobs
are looked at that wait for an instant which has passed, and those with which something was wrong.
So an outage is seen within seconds, however many jobs there are, and a job that only its schedule
gives away within a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from tickrail.core.clock import Clock
from tickrail.core.definition import Plan
from tickrail.core.errors import TickrailError
from tickrail.core.ids import JobId
from tickrail.core.plan import from_completion
from tickrail.core.ports import Calendars, DueJob
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_watch import LastRun, WatchedJob, WatchSnapshot, WatchStore
from tickrail.core.watch import (
    Finding,
    WatchRules,
    Wrong,
    adrift,
    after_completion,
    expected,
    finding,
    missing,
    overdue,
    range_of,
    unlaunched,
)
from tickrail.core.watch_alarm import Alarm, AlarmBook, finding_document, lateness
from tickrail.core.zones import TZDATA_VERSION
from tickrail.engine.tick import CalendarCache, PlanCache, calendars_of

log = structlog.get_logger("tickrail.watchdog")

MOST_KEPT = 10_000
"""So many jobs with which something is wrong are kept and shown; more are not."""
_NO_RUN = LastRun(is_open=False, at=None)
_REST = 1.0
"""A page is followed by a rest of so many times what it took: the machine is others', too."""
_LINES = 100
"""So many jobs have a line of their own in the log."""


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """How it is looked.

    Attributes:
        every: seconds from the beginning of a pass to that of the next, if it takes no longer; so
            often what is overdue is looked at, too.
        rules: when a slot is late.
        page: jobs of one turn.
        overdue: overdue jobs of each partition that are looked at beside the pass.
        silent: jobs whose expected success is looked for in one turn.
    """

    every: float = 15.0
    rules: WatchRules = field(default_factory=WatchRules)
    page: int = 1000
    overdue: int = 50
    silent: int = 200


class AlarmTaker(Protocol):
    """Sends alarms to operators."""

    def take(self, alarm: Alarm) -> None:
        """Send it, in place of one that has not arrived yet."""
        ...


class SlotJudge:
    """Decides about jobs from what one snapshot holds; one job's bad plan stays its own."""

    def __init__(self, rules: WatchRules) -> None:
        self._least = self._rules = rules
        self._plans = PlanCache()
        self._calendars = CalendarCache()

    def looks_back(self, at_least: timedelta) -> None:
        """Look back so far, where that is farther than the rules say: a pass may take its time."""
        far = max(self._least.look_back, at_least)
        self._rules = replace(self._least, look_back=far)

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that the job names."""
        return calendars_of(job)

    def judge(self, s: WatchSnapshot, jobs: Sequence[WatchedJob]) -> list[Finding]:
        """Those of these jobs with which something is wrong."""
        found: list[Finding] = []
        calendars = s.calendars([w.job for w in jobs], self)
        due: list[tuple[WatchedJob, Plan, Sequence[datetime]]] = []
        chained: list[tuple[WatchedJob, Plan]] = []
        for w in jobs:
            try:
                plan = self._plan(w, calendars, s.now)
                slots = expected(w, plan, s.now, self._rules)
                wrong = None if slots else self._other(w, plan, s.now)
            except Exception as e:  # noqa: BLE001 - one job's bad data must harm no other job
                found.append(_unreadable(w, e))
                continue
            if slots:
                due.append((w, plan, slots))
            elif wrong is not None:
                found.append(wrong)
            elif plan.schedule is not None and from_completion(plan):
                chained.append((w, plan))
        found += self._due(s, due)
        runs = s.last_runs([w.job.id for w, _ in chained])
        late = (
            after_completion(w, plan, runs.get(w.job.id, _NO_RUN), s.now, self._rules)
            for w, plan in chained
        )
        return [*found, *(f for f in late if f is not None)]

    def _other(self, w: WatchedJob, plan: Plan, now: datetime) -> Finding | None:
        """What is wrong with a job none of whose late slots is missing."""
        return overdue(w, now, self._rules) or adrift(w, plan, now, TZDATA_VERSION)

    def _plan(self, w: WatchedJob, calendars: Calendars, now: datetime) -> Plan:
        return self._calendars.resolve(self._plans.get(w.job, now), w.job.tenant, calendars)

    def _due(
        self, s: WatchSnapshot, due: Sequence[tuple[WatchedJob, Plan, Sequence[datetime]]]
    ) -> list[Finding]:
        """Those whose slots have no record; of the others, those that will miss their next."""
        if not due:
            return []
        found: list[Finding] = []
        low = min(range_of(w, plan, s.now, self._rules).first for w, plan, _ in due)
        launched = s.launched([w.job.id for w, _, _ in due], low, s.now)
        left = [
            (w, plan, unlaunched(slots, launched.get(w.job.id, frozenset())))
            for w, plan, slots in due
        ]
        asked = [w.job.id for w, _, slots in left if slots]
        skipped = s.skipped(asked, low, s.now)
        for w, plan, slots in left:
            runs = skipped.get(w.job.id, ())
            wrong = missing(w, plan, slots, runs, s.now - self._rules.late) if slots else None
            wrong = wrong or self._other(w, plan, s.now)
            if wrong is not None:
                found.append(wrong)
        return found


class Watchdog:
    """The loop's body. Used by one thread."""

    def __init__(
        self,
        store: WatchStore,
        clock: Clock,
        metrics: Metrics,
        alarms: AlarmTaker,
        settings: WatchdogSettings | None = None,
    ) -> None:
        """Nothing looked at yet.

        Args:
            store: the jobs and the records of their slots.
            clock: measures.
            metrics: where it is told.
            alarms: sends what operators are told.
            settings: the numbers.
        """
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._alarms = alarms
        self._settings = settings or WatchdogSettings()
        self._judge = SlotJudge(self._settings.rules)
        self._found: dict[JobId, Finding] = {}
        self._book = AlarmBook()
        self._after: JobId | None = None
        self._began: float | None = None  # the pass under way
        self._pass_at = self._look_at = clock.monotonic()
        self._whole = False
        self.last_look: float | None = None
        """The monotonic time of the last turn that came to its end."""
        self.last_pass: float | None = None
        """That of the last pass."""

    @property
    def found(self) -> Sequence[Finding]:
        """What is wrong at this moment."""
        return list(self._found.values())

    def run_once(self) -> float:
        """One turn: what is overdue if it is time, and a page of the pass; seconds until the next.

        Raises:
            UnavailableError: the database does not answer.
        """
        began = self._clock.monotonic()
        if began >= self._look_at:
            self._look_at = began + self._settings.every
            self._overdue()
        if self._began is None and began >= self._pass_at:
            self._began, self._after = began, None
        if self._began is not None:
            self._page(self._began)
        now = self._clock.monotonic()
        self.last_look = now
        if self._began is not None:
            return min(1.0, _REST * (now - began))
        return max(0.0, min(self._pass_at, self._look_at) - now)

    def _overdue(self) -> None:
        """What waits for an instant that has passed, and what was wrong before."""
        rules = self._settings.rules
        with self._store.snapshot() as s:
            jobs = {w.job.id: w for w in s.overdue(s.now - rules.late, self._settings.overdue)}
            jobs |= {w.job.id: w for w in s.named([j for j in self._found if j not in jobs])}
            gone = self._found.keys() - jobs.keys()
            self._take(jobs.values(), self._judge.judge(s, list(jobs.values())), s.now)
            for job in gone:
                del self._found[job]
            self._tell(s.now)

    def _page(self, began: float) -> None:
        with self._store.snapshot() as s:
            page = s.page(self._after, self._settings.page)
            self._take(page.jobs, self._judge.judge(s, page.jobs), s.now)
            self._after = page.last
            if page.last is None:
                self._whole = True
                now = self.last_pass = self._clock.monotonic()
                self._metrics.gauge("watchdog_pass_seconds", now - began)
                self._judge.looks_back(timedelta(seconds=2 * (now - began)))
                self._pass_at = began + self._settings.every
                self._began = None
            self._tell(s.now)

    def _take(self, looked: Iterable[WatchedJob], wrong: Sequence[Finding], now: datetime) -> None:
        """Keep what is wrong, forget what is right again."""
        by_job = {f.job: f for f in wrong}
        count = 0
        for w in looked:
            count += 1
            f = by_job.get(w.job.id)
            if f is None:
                if self._found.pop(w.job.id, None) is not None:
                    log.info("job_in_order_again", job=str(w.job.id), name=w.name)
                continue
            before = self._found.get(f.job)
            if before is None and len(self._found) >= MOST_KEPT:
                continue
            self._found[f.job] = f
            self._whole = False
            if before is None or before.wrong is not f.wrong:
                self._metrics.count("watchdog_found_total", wrong=f.wrong.value)
                self._say(f, now)
        self._metrics.count("watchdog_checked_total", count)

    def _say(self, f: Finding, now: datetime) -> None:
        """A line for each of the first jobs with which something is wrong at a time."""
        if len(self._found) <= _LINES:
            late = None if f.due_at is None else round((now - f.due_at).total_seconds(), 3)
            said = log.warning if f.wrong is Wrong.ADRIFT else log.error
            said("job_wrong", **finding_document(f), late_seconds=late)

    def _tell(self, now: datetime) -> None:
        gauge = self._metrics.gauge
        found = self._found.values()
        gauge("watchdog_slots_missing", sum(f.slots for f in found))
        gauge("watchdog_slots_late_seconds", lateness(self._found, now))
        for wrong in Wrong:
            count = sum(f.wrong is wrong for f in found)
            gauge("watchdog_jobs_wrong", count, wrong=wrong.value)
        alarm = self._book.look(self._found, now, whole=self._whole)
        if alarm is not None:
            log.warning("alarm", said=alarm.said.value, text=alarm.text)
            self._alarms.take(alarm)


class SilenceWatch:
    """The body of a second loop: jobs that expect a success and have had none in time."""

    def __init__(
        self, store: WatchStore, metrics: Metrics, *, batch: int = 200, every: float = 5.0
    ) -> None:
        """Nothing looked at yet.

        Args:
            store: the jobs.
            metrics: where it is told.
            batch: jobs of one turn.
            every: seconds between two looks.
        """
        self._store = store
        self._metrics = metrics
        self._batch = batch
        self._every = every

    def run_once(self) -> float:
        """Look for the successes that are due; seconds until the next look.

        Raises:
            UnavailableError: the database does not answer.
        """
        fallen, looked = self._store.tell_silent(self._batch)
        for job in fallen:
            log.warning(
                "job_silent", job=str(job.job), name=job.name, since=job.since.isoformat(),
                every=job.every.total_seconds(),
            )  # fmt: skip
        if fallen:
            self._metrics.count("watchdog_silences_total", len(fallen))
        # Also where none was looked at: one may have been deleted, or expects nothing any more.
        self._metrics.gauge("watchdog_jobs_silent", self._store.silent())
        return 0.0 if looked >= self._batch else self._every


def _unreadable(w: WatchedJob, error: Exception) -> Finding:
    text = str(error) if isinstance(error, TickrailError) else f"{type(error).__name__}: {error}"
    return finding(w, Wrong.UNREADABLE, None, 0)._replace(error=text[:1000])
