"""A world: servers, processes, jobs; what happens to them; and what must be true in the end."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from tests.simulation.account import DEAD, Account
from tests.simulation.ending import check_slots
from tests.simulation.eras import CREATED, Era
from tests.simulation.happenings import Happenings
from tests.simulation.kafka import SimBus
from tests.simulation.kernel import Kernel, Process, SimClock
from tests.simulation.plan import LENGTH, History
from tests.simulation.processes import GROUP, LETTERS, PARTITIONS, TOPICS, Scheduler, Worker
from tests.simulation.requests import REST, rest_document
from tests.simulation.servers import SimDatabase, SimEtcd
from tests.simulation.succession import Succession
from tests.simulation.violation import Violation
from tests.support.clock import START
from tests.support.memory_api import Extra
from tests.support.memory_tables import BackfillRow, JobRow
from tests.support.stepped import TENANT

from tickrail.core.backfill import Backfill, Existing
from tickrail.core.definition import Definition, Plan, parse_definition
from tickrail.core.execution import SUCCESS, Outcome, Run
from tickrail.core.ids import Epoch, JobId, Partition
from tickrail.core.plan import first_due
from tickrail.core.policies import CatchUpOrder
from tickrail.core.ports import CalendarText, DueJob
from tickrail.engine import backfill_requests
from tickrail.engine import launches as launches_module
from tickrail.engine.tick import PlanCache

RECOVERY = 30.0
"""So long after the repair everything that is due must be launched again, in seconds."""
DRAIN = 400.0
MENDED_AGAIN = 10.0
MOST_PLANS = 20_000


class Plans(PlanCache):
    """Plans of many histories: in each, an edit may make something else of a job's version 2."""

    def __init__(self) -> None:
        super().__init__()
        self._by_text: dict[tuple[JobId, str], Plan] = {}

    def get(self, job: DueJob, now: datetime) -> Plan:
        key = (job.id, job.plan)
        if key not in self._by_text:
            if len(self._by_text) > MOST_PLANS:
                self._by_text.clear()
            self._by_text[key] = self._read(job, now)
        return self._by_text[key]


_PLANS = Plans()


@lru_cache(maxsize=5000)
def _defined(text: str, job: UUID) -> tuple[Definition, str, str]:
    parsed = parse_definition(json.loads(text), job=JobId(job), now=CREATED)
    return parsed, json.dumps(parsed.plan_document()), json.dumps(parsed.document())


class Silent:
    """A log that says nothing."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_more: None


@contextmanager
def silence(seed: int) -> Iterator[None]:
    """No log lines, and the dice of the program are the seed's."""
    silent, kept = Silent(), []
    for name, module in list(sys.modules.items()):
        if name.startswith("tickrail.engine"):
            for attribute in ("log", "_LOG"):
                if hasattr(module, attribute):
                    kept.append((module, attribute, getattr(module, attribute)))
                    setattr(module, attribute, silent)
    dice, made = random.getstate(), random.Random(f"{seed}/uuid")
    uuid7 = launches_module.uuid7
    for module in (launches_module, backfill_requests):
        module.uuid7 = lambda _clock: UUID(int=made.getrandbits(128))
    random.seed(f"{seed}/backoff")
    try:
        yield
    finally:
        for module in (launches_module, backfill_requests):
            module.uuid7 = uuid7
        random.setstate(dice)
        for module, attribute, value in kept:
            setattr(module, attribute, value)


@dataclass
class Result:
    """What became of a history."""

    violation: Violation | None
    events: int
    steps: int
    counts: Mapping[str, int]
    trace: list[str]


class World:
    """Everything there is."""

    lost_after = timedelta(seconds=15)
    owed_after = timedelta(seconds=8)
    partitions = PARTITIONS

    def __init__(self, history: History, *, trace: bool = False) -> None:
        self.history = history
        self.seed = history.seed
        self.kernel = kernel = Kernel(str(history.seed), history.noise)
        kernel.repaired_at = LENGTH
        kernel.trace = [] if trace else None
        kernel.crashed = self._crashed
        self.dice = self.rng("world")
        self.etcd = SimEtcd(SimClock(kernel))
        self.db = SimDatabase(kernel, SimClock(kernel), PARTITIONS)
        self.bus = SimBus(kernel, LETTERS)
        for topic in (*TOPICS, LETTERS):
            self.bus.create(topic, PARTITIONS)
        self.account = Account(kernel, self.db, self.bus, LETTERS)
        self.account.others = self._others
        self.processes: dict[str, Scheduler | Worker] = {}
        self.documents = {j["name"]: j for j in history.jobs}
        self.jobs: dict[str, JobId] = {}
        self.api = Process("api", self.db.clock, self.rng("api"))
        self._wakes = 0
        self._mended_at = 0.0
        self.succession = Succession(self)
        self.deaf_until = 0.0
        self.slow_until = 0.0
        self.db.calendars[TENANT, "rest"] = CalendarText(1, json.dumps(rest_document(REST)))
        self.db.rest = REST
        self.db.api.calendar_times["rest"] = (CREATED, CREATED)
        for n, document in enumerate(history.jobs):
            self._make_job(n, document)
        self.account.observe(self.api, "api", (), None)

    def rng(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def zone_version(self) -> str:
        return self.dice.choice(("2026a", "2026a", "2026b"))

    def _make_job(self, n: int, document: Mapping[str, Any]) -> None:
        doc = {k: v for k, v in document.items() if k != "backfill"}
        text = json.dumps(doc, sort_keys=True)
        job = JobId(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16]))
        parsed, plan, definition = _defined(text, job)
        due = first_due(parsed.plan, job, CREATED)
        self.jobs[document["name"]] = job
        self.db.jobs[job] = JobRow(
            job, TENANT, parsed.name, Partition(n % PARTITIONS), plan, {1: definition}, due
        )
        named = parsed.plan.calendars is not None
        self.db.jobs[job].last_slot_at = CREATED if named else None
        self.db.api.extra[job] = Extra(CREATED, CREATED, calendars=("rest",) if named else ())
        self.db.eras[job] = (Era(CREATED, doc["schedule"], REST if named else None),)
        if "backfill" in document:
            back = timedelta(seconds=document["backfill"]["back"])
            b = Backfill(
                UUID(int=n), START - back, START, CatchUpOrder.OLDEST, Existing.LEAVE, None,
                document["backfill"]["max_open"], None, 0, START,
            )  # fmt: skip
            self.db.backfills[b.id] = BackfillRow(b, job)

    # --- processes --------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """A life of a process begins."""
        old = self.processes.get(name)
        if old is not None and old.alive:
            return
        self.kernel.say(name, "begins")
        made: Scheduler | Worker
        if name.startswith("s"):
            made = Scheduler(self, name)
            parts = made.owner
            for part in (parts._tick, parts._backfills, parts._zones):
                share_plans(part)
        else:
            made = Worker(self, name)
        made.clock.ahead = self.db.clock.ahead
        made.began = self.kernel.now
        made.rng.seed(f"{self.seed}/{name}/{self.kernel.now}")
        self.processes[name] = made

    def _crashed(self, process: Process) -> None:
        self.kernel.say(process.name, "is gone")
        if isinstance(process, Scheduler):
            self.succession.begin_again()
            process.ownership._coordinator.close()
        back = self.kernel.now + self.dice.choice((0.5, 2.0, 5.0, 9.0))
        self.kernel.at(back, lambda: self.begin(process.name))

    def schedulers(self) -> list[Scheduler]:
        return [p for p in self.processes.values() if isinstance(p, Scheduler) and p.alive]

    def workers(self) -> list[Worker]:
        return [p for p in self.processes.values() if isinstance(p, Worker) and p.alive]

    def _others(self, process: Process) -> Iterator[tuple[str, Mapping[Partition, Epoch]]]:
        for other in self.schedulers():
            if other is not process:
                yield other.name, other.ownership.owned()

    def fate_of(self, run: Run) -> tuple[float, Outcome]:
        """How long a run takes, and how it ends."""
        dice = self.rng(f"{run.job_name}/{run.scheduled_at}/{run.attempt}/{run.claim}")
        seconds = dice.choice((0.0, 0.05, 0.3, 1.0, 2.5, 2.5, 7.0, 15.0))
        kind = dice.random()
        if self.kernel.now < self.slow_until:
            return 11.0, SUCCESS
        if kind < 0.75:
            return seconds, SUCCESS
        if kind < 0.85:
            return min(seconds, 1.0), Outcome(ok=False, outcome="http_500")
        if kind < 0.95:
            return seconds, Outcome(ok=False, outcome="reset", certain=False)
        return 0.1, Outcome(ok=False, outcome="http_400", retryable=False)

    # --- time -------------------------------------------------------------------------------------

    def _housekeeping(self) -> None:
        self.etcd.settle()
        self.bus.housekeeping()
        self.notify()
        self.succession.look()
        self.kernel.at(self.kernel.now + 0.5, self._housekeeping)

    def notify(self) -> None:
        """Schedulers hear of what was committed."""
        if self.db.wakes != self._wakes:
            self._wakes = self.db.wakes
            if self.kernel.now < self.deaf_until:
                return
            for one in self.schedulers():
                self.kernel.at(self.kernel.now + 0.01, one.wake, one)

    def run(self) -> Result:
        """Everything from the beginning to the end."""
        violation, kernel = None, self.kernel
        with silence(self.seed):
            try:
                self._live()
                self._repair()
                self._recover()
                self._drain()
                check_slots(self)
            except Violation as broken:
                violation = broken
            except Exception as error:  # noqa: BLE001 - a loop's turn must not fail otherwise
                at = traceback.extract_tb(error.__traceback__)[-1]
                violation = Violation("no turn fails", f"{error!r} in {at.name}, {at.filename}")
            finally:
                kernel.close()
        counts = Counter(kernel.done) + self.account.counts
        counts["turns that crossed"] = kernel.crossed
        return Result(violation, len(self.history.events), kernel.steps, counts, kernel.trace or [])

    def _live(self) -> None:
        kernel = self.kernel
        happens = Happenings(self)
        for n in range(self.history.schedulers):
            self.begin(f"s{n}")
        for n in range(self.history.workers):
            self.begin(f"w{n}")
        kernel.at(0.5, self._housekeeping)
        arrived = self.bus.arrived

        def wake_workers(*message: Any) -> None:
            arrived(*message)
            for one in self.workers():
                kernel.at(kernel.now + 0.01, lambda w=one: kernel.wake(w.taking), one)  # type: ignore[misc]

        self.bus.arrived = wake_workers
        for event in self.history.events:
            happens.plan(event)
        kernel.run(LENGTH)

    def _repair(self) -> None:
        kernel = self.kernel
        kernel.say("", "--- all is repaired ---")
        kernel.faults.clear()
        self.bus.fates.clear()
        kernel.noise, kernel.troubled = 0.0, False
        for server in kernel.down:
            kernel.down[server] = False
        self.db.locked_jobs.clear()
        self.db.locked_launches.clear()
        self.db.suspended.clear()
        self.db.paused_queues.clear()
        self.deaf_until = 0.0
        for topic in (*TOPICS, LETTERS):
            self.bus.create(topic, PARTITIONS)
        for one in self.processes.values():
            one.cut_until.clear()
            one.clock.ahead = self.db.clock.ahead
        for n in range(self.history.schedulers):
            self.begin(f"s{n}")
        for n in range(self.history.workers):
            self.begin(f"w{n}")

    def _recover(self) -> None:
        """In bounded time every partition has an owner, and nothing waits that is due."""
        kernel, began = self.kernel, self.kernel.now
        while (missing := self._missing()) or kernel.now < began + 2.0:
            if kernel.now > began + RECOVERY:
                raise Violation("all is launched again", missing)
            kernel.run(kernel.now + 1.0)

    def mend(self) -> None:
        """What the operator does where etcd went back: the command that raises the generation."""
        if any(s.ownership.status().refused for s in self.schedulers()):
            self.kernel.say("", "!! the generation is raised")
            self.kernel.done.append("generation raised")
            self.db.fence.stored_generation += 1

    def _missing(self) -> str:
        owned = Counter(p for s in self.schedulers() if not s.owning.stuck
                        for p in s.ownership.owned())  # fmt: skip
        if len(owned) < PARTITIONS:
            if self.kernel.now > self._mended_at + MENDED_AGAIN:
                self._mended_at = self.kernel.now
                self.mend()
            return f"only {sorted(owned)} have an owner"
        if max(owned.values()) > 1:
            return "a partition has two owners"
        able = [s for s in self.schedulers() if not s.owning.stuck]
        if {s.name for s in able} - self.etcd.drains.keys():
            for s in able:
                if s.name in self.etcd.drains and s.ownership.owned():
                    return f"{s.name} is drained and owns {sorted(s.ownership.owned())}"
        late = self.db.clock.now() - timedelta(seconds=2)
        for j in self.db.jobs.values():
            if j.state == "active" and j.next_run_at is not None and j.next_run_at < late:
                return f"{j.name} is due since {j.next_run_at}"
        return ""

    def _drain(self) -> None:
        """Nothing new comes; in bounded time everything has ended."""
        kernel, began = self.kernel, self.kernel.now
        while (left := self._left()) or kernel.now < began + 1.0:
            for j in self.db.jobs.values():
                if j.state == "active" and not j.awaits:
                    j.state = "paused"
            self.account.observe(self.api, "api", (), None)
            if kernel.now > began + DRAIN:
                raise Violation("everything ends", left)
            kernel.run(kernel.now + 1.0)

    def _left(self) -> str:
        for row in self.db.launches.values():
            if row.state.value not in DEAD:
                return f"{self.account._name(row.id)} is {row.state} at attempt {row.attempt}"
            if row.dlq_owed:
                return f"{self.account._name(row.id)} owes a dead letter"
        for j in self.db.jobs.values():
            if j.awaits and j.state == "active":
                return f"{j.name} awaits an end that is there"
        for b in self.db.backfills.values():
            if b.state == "running":
                return f"the backfill {b.backfill.id.int} runs"
        return self._unread()

    def _unread(self) -> str:
        """A message that the group's position has not passed."""
        bus = self.bus
        for topic in TOPICS:
            if bus.births[topic] or topic in bus.truncated:
                continue  # who did not notice may be beyond what came meanwhile
            for partition, log in enumerate(bus.logs[topic]):
                position = bus.position(GROUP, topic, partition) or 0
                if any(message is not None for message in log[position:]):
                    return f"{topic} {partition} is committed up to {position} of {len(log)}"
        return ""


def share_plans(part: Any) -> None:
    """Plans that were read once are not read again in each history."""
    for name in ("_planner", "_mover"):
        reader = getattr(part, name, None)
        for cache in ("_cache", "_plans"):
            if hasattr(reader, cache):
                setattr(reader, cache, _PLANS)
