"""A whole installation stepped by hand: the real loops on the memory store and the memory bus.

`tick`, `relay`, `work` and the rest are one turn of a loop each; nothing happens in between, and
time passes by `advance` alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from tests.support.clock import FakeClock
from tests.support.memory_bus import MemoryBus, MemoryConsumer, MemoryPublisher
from tests.support.memory_reports import MemoryReportStore
from tests.support.memory_store import MemoryOwnerStore
from tests.support.memory_tables import JobRow, LaunchRow, MemoryDatabase
from tests.support.memory_worker import MemoryWorkerStore

from tickrail.bus.codec import decode_launch, encode_dead_letter, encode_launch
from tickrail.bus.topics import PRIORITIES, dlq_topic, launch_topic, retry_topic, work_topics
from tickrail.core.definition import parse_definition
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS, Done, Outcome, Run
from tickrail.core.ids import Epoch, JobId, LaunchId, Partition, TenantId, launch_id
from tickrail.core.limits import CLASS_WEIGHTS
from tickrail.core.messages import UndecodableLetter
from tickrail.core.plan import first_due
from tickrail.core.ports import FenceReport, OwedLetter, Publication, Ticked
from tickrail.core.states import State
from tickrail.engine.deadletters import LetterBox, OwedLetters
from tickrail.engine.intake import Intake, IntakeSettings
from tickrail.engine.reaper import Reaped, Reaper, ReaperSettings
from tickrail.engine.relay import Relay, Relayed, RelaySettings, Route
from tickrail.engine.run_reports import RunReports
from tickrail.engine.runs import Runs, RunsSettings
from tickrail.engine.tick import Tick
from tickrail.runtime.metrics import PrometheusMetrics

PARTITIONS = 4
PREFIX = "t"
GROUP = "workers"
QUEUE = "default"
TENANT = TenantId(UUID(int=1))
WEIGHTS = dict(zip(PRIORITIES, CLASS_WEIGHTS, strict=True))


class Counted:
    """Metrics that remember; a name or label that is not in the table fails, as in a process."""

    def __init__(self) -> None:
        self._real = PrometheusMetrics()
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.observed: dict[str, list[float]] = defaultdict(list)
        self.gauges: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self._real.count(name, amount, **labels)
        self.counts[(name, *labels.values())] += int(amount)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._real.observe(name, value, **labels)
        self.observed[name].append(value)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self._real.gauge(name, value, **labels)
        self.gauges[name] = value


@dataclass
class HandExecutor:
    """`core.execution.Executor`: runs end when the test says, or at once as `answer` says."""

    kinds: frozenset[str] = frozenset({"noop"})
    answer: Callable[[Run], Outcome] | None = None
    deaf: bool = False
    started: list[Run] = field(default_factory=list)
    running: dict[Run, Done] = field(default_factory=dict)
    cancelled: list[tuple[UUID, str]] = field(default_factory=list)

    def start(self, run: Run, done: Done) -> None:
        self.started.append(run)
        if self.answer is not None:
            done(run, self.answer(run))
        else:
            self.running[run] = done

    def end(self, run: Run | None = None, outcome: Outcome = SUCCESS) -> None:
        """End a run; without one, the only one."""
        if run is None:
            (run,) = self.running
        self.running.pop(run)(run, outcome)

    def cancel(self, run: Run, reason: str) -> None:
        if run in self.running:
            self.cancelled.append((run.launch_id, reason))
            if not self.deaf:
                self.end(run, Outcome(ok=False, outcome=reason, certain=False))

    def close(self, grace: float) -> None:
        del grace
        for run in list(self.running):
            self.end(run, Outcome(ok=False, outcome="interrupted", certain=False))


@dataclass
class FewPlaces(HandExecutor):
    """One with few places."""

    kinds: frozenset[str] = frozenset({"command"})
    places: int = 2

    @property
    def free_places(self) -> int:
        return self.places - len(self.running)

    def needs_place(self, name: str) -> bool:
        del name
        return True


def failure(outcome: str = "http_500", **more: Any) -> Outcome:
    """A certain failure that may be tried again, unless told otherwise."""
    return Outcome(ok=False, outcome=outcome, **more)


class Worker:
    """A worker process: intake, runs and executor."""

    def __init__(
        self, world: Stepped, name: str, executor: HandExecutor | None = None, **settings: Any
    ) -> None:
        self.world = world
        self.executor = executor or HandExecutor()
        self.others = [] if executor is None else [HandExecutor()]
        self.store = MemoryWorkerStore(world.db)
        self.consumer = MemoryConsumer(world.bus, GROUP)
        self.publisher = MemoryPublisher(world.bus)
        self.metrics = Counted()
        self.told = MemoryReportStore(world.db)
        self.reports = RunReports(self.told)
        self.buried: list[UndecodableLetter] = []
        self.bury_fails: Exception | None = None
        box = LetterBox(self.publisher, lambda q: dlq_topic(PREFIX, q), encode_dead_letter)

        def post(owed: Sequence[OwedLetter]) -> list[tuple[LaunchId, datetime, int]]:
            return box.post(owed, 5.0)

        self.runs = Runs(
            self.store,
            [self.executor, *self.others],
            world.clock,
            self.metrics,
            RunsSettings(gather=0.0),
            offset_done=lambda place, offset: self.intake.offset_done(place, offset),  # noqa: PLW0108 - made below
            letters=post,
            reports=self.reports,
        )
        topics = work_topics(PREFIX, QUEUE)
        weights = {launch_topic(PREFIX, QUEUE, p): WEIGHTS[p] for p in PRIORITIES}
        weights[retry_topic(PREFIX, QUEUE)] = 2
        self.intake = Intake(
            self.consumer,
            self.store,
            self.runs,
            world.clock,
            self.metrics,
            replace(
                IntakeSettings(name, topics, weights=weights), **{"commit_every": 0.0, **settings}
            ),
            decode=decode_launch,
            bury=self._bury,
        )

    def _bury(self, letter: UndecodableLetter) -> None:
        if self.bury_fails is not None:
            raise self.bury_fails
        self.buried.append(letter)

    def take(self) -> int:
        """Poll, claim, start, commit."""
        return self.intake.run_once(0.0)

    def finish(self) -> int:
        """Record what has ended."""
        return self.runs.finish_once(0.0)

    def heartbeat(self) -> None:
        """Extend claims, look for cancels."""
        self.runs.heartbeat_once()

    def work(self) -> None:
        """Take, finish, and commit what that was."""
        self.take()
        self.finish()
        self.take()

    def done_offset(self, topic: str, partition: int = 0) -> int | None:
        """What the group has committed."""
        return self.world.bus.position(GROUP, topic, partition)


class Stepped:
    """The installation: P = K = 4, one queue."""

    def __init__(self, *, relay: dict[str, Any] | None = None) -> None:
        self.clock = FakeClock()
        self.db = MemoryDatabase(self.clock, PARTITIONS)
        self.bus = MemoryBus()
        for topic in (*work_topics(PREFIX, QUEUE), dlq_topic(PREFIX, QUEUE)):
            self.bus.create(topic, PARTITIONS)
        self.metrics = Counted()
        self.owned: dict[Partition, Epoch] = {}
        self.fences: list[FenceReport] = []
        self._relay_settings = RelaySettings(PARTITIONS, **(relay or {}))
        self.take_over(Epoch(7))
        self._workers: dict[str, Worker] = {}

    def take_over(self, epoch: Epoch) -> None:
        """A new owner process takes every partition."""
        self.owned = dict.fromkeys(map(Partition, range(PARTITIONS)), epoch)
        self.db.fence.epochs.update(self.owned)
        self.begin_process()

    def begin_process(self) -> None:
        """A new owner process; the old one's objects are forgotten."""
        self.store = MemoryOwnerStore(self.db)
        self.publisher = MemoryPublisher(self.bus)
        self.ticker = Tick(self.store, self.metrics)
        self.relayer = Relay(
            self.store, self.publisher, route, encode_launch, self.clock, self.metrics,
            self._relay_settings,
        )  # fmt: skip
        self.reaper = Reaper(self.store, self.clock, self.metrics, ReaperSettings())
        box = LetterBox(
            MemoryPublisher(self.bus), lambda q: dlq_topic(PREFIX, q), encode_dead_letter
        )
        self.letters = OwedLetters(self.store, box, self.metrics)

    def worker(self, name: str = "w-1", **settings: Any) -> Worker:
        """The worker of this name, made at first use."""
        if name not in self._workers:
            self._workers[name] = Worker(self, name, **settings)
        return self._workers[name]

    # --- steps ------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def tick(self) -> Ticked:
        """Due jobs become launches; the relay hears of them, and the reaper of an outage."""
        try:
            ticked = self.ticker.run_once(self.owned)
        except UnavailableError:
            self.reaper.database_failed()
            raise
        self.reaper.database_seen(ticked.now)
        self.relayer.accept(ticked.inserted, ticked.now)
        return ticked

    def relay(self, times: int = 1) -> Relayed:
        """Due launches go out; what has arrived is marked. Two turns mark what one published."""
        for _ in range(times):
            self.relayer.wake()
            relayed = self.relayer.run_once(self.owned)
            self.fences += relayed.fence
        return relayed

    def sweep(self) -> Reaped:
        """Housekeeping."""
        reaped = self.reaper.run_once(self.owned)
        if reaped.woke:
            self.relayer.wake()
        return reaped

    def pass_through(self) -> None:
        """Tick, relay and work, once."""
        self.tick()
        self.relay(2)
        self.worker().work()

    # --- rows -------------------------------------------------------------------------------------

    def job(
        self,
        *,
        partition: int = 0,
        tenant: TenantId = TENANT,
        start: bool = True,
        **definition: Any,
    ) -> JobId:
        """A job with this definition (default target: noop)."""
        job, now = JobId(uuid4()), self.clock.now()
        document = {"name": f"job-{job.hex[:8]}", "target": {"noop": {}}, **definition}
        parsed = parse_definition(document, job=job, now=now)
        due = first_due(parsed.plan, job, now) if start else None
        self.db.jobs[job] = JobRow(
            job, tenant, parsed.name, Partition(partition), json.dumps(parsed.plan_document()),
            {1: json.dumps(parsed.document())}, due,
        )  # fmt: skip
        return job

    def launch(self, job: JobId | None = None, **columns: Any) -> LaunchId:
        """A launch that is due now, as if inserted by hand."""
        owner = self.db.jobs[job or self.job(overlap="allow")]
        now = self.clock.now()
        launch = launch_id(owner.id, now.replace(microsecond=0), f"manual:{uuid4()}")
        row = LaunchRow(
            id=launch, scheduled_at=now.replace(microsecond=0), tenant_id=owner.tenant_id,
            job_id=owner.id, job_version=1, partition=owner.partition, queue=QUEUE, priority=1,
            state=State.DUE, max_attempts=5, rerun=True, visibility=30.0, due_at=now,
        )  # fmt: skip
        self.db.launches[launch] = replace(row, **columns)
        return launch

    def row(self, launch: LaunchId) -> LaunchRow:
        return replace(self.db.launches[launch])

    def states(self) -> Counter[str]:
        """How many launches there are in each state."""
        return Counter(x.state.value for x in self.db.launches.values())

    def launches(self, job: JobId) -> list[LaunchRow]:
        found = [replace(x) for x in self.db.launches.values() if x.job_id == job]
        return sorted(found, key=lambda x: x.scheduled_at)

    def cancel(self, launch: LaunchId) -> None:
        self.db.cancel(self.db.launches[launch], self.clock.now())

    def messages(self, topic: str | None = None) -> list[tuple[UUID, int]]:
        """(launch, attempt) of every message ever published to a topic; None: to all."""
        topics = work_topics(PREFIX, QUEUE) if topic is None else (topic,)
        found = [decode_launch(m.value) for t in topics for m in self.bus.messages(t)]
        return [(m.launch, m.attempt) for m in found]


def route(p: Publication) -> Route:
    """As the scheduler routes: later attempts to the retry topic."""
    if p.attempt > 1:
        return Route(retry_topic(PREFIX, p.queue), p.partition)
    return Route(launch_topic(PREFIX, p.queue, PRIORITIES[p.priority]), p.partition)
