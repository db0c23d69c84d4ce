"""The processes of a simulation: the real loops on ports that time and faults pass through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tests.simulation.kafka import SimConsumer, SimPublisher
from tests.simulation.kernel import Process, SimClock, Task, port
from tests.simulation.servers import SimOwnerStore, SimWorkerStore
from tests.support.memory_coord import MemoryCoordinator
from tests.support.stepped import PREFIX, QUEUE, WEIGHTS, route

from tickrail.bus.codec import decode_launch, encode_dead_letter, encode_launch
from tickrail.bus.topics import PRIORITIES, dlq_topic, launch_topic, retry_topic, work_topics
from tickrail.core.execution import CLAIM_LOST, Done, Outcome, Run
from tickrail.core.ids import LaunchId
from tickrail.core.messages import UndecodableLetter
from tickrail.core.ports import OwedLetter
from tickrail.core.ports_metrics import NullMetrics
from tickrail.engine.backfills import Backfills
from tickrail.engine.deadletters import LetterBox, OwedLetters
from tickrail.engine.intake import Intake, IntakeSettings
from tickrail.engine.owner import OwnerLoop, OwnerParts, OwnerSettings
from tickrail.engine.ownership import Ownership, OwnershipSettings
from tickrail.engine.reaper import Reaper, ReaperSettings
from tickrail.engine.relay import Relay, RelaySettings
from tickrail.engine.runs import Runs, RunsSettings
from tickrail.engine.tick import Tick
from tickrail.engine.zone_data import ZoneData

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP = "workers"
TOPICS = work_topics(PREFIX, QUEUE)
LETTERS = dlq_topic(PREFIX, QUEUE)
PARTITIONS = 3
TTL = 6
STUCK_AFTER = 8.0
OWNER_CALLS = (
    "tick", "resume", "complete", "queued", "backlog", "mark_queued", "mark_unpublishable",
    "sweep", "reap", "owed", "settle", "dead_letters", "backfill", "make_days", "drop_days",
    "rouse",
)  # fmt: skip
ZONE_CALLS = ("versions", "rezone", "store_version")
FENCE_CALLS = ("raise_epoch", "highest_epoch", "generation", "database_now", "advance_claims")
ETCD_CALLS = (
    "grant", "renew", "revoke", "put_member", "remove_member", "claim", "release", "snapshot",
)  # fmt: skip
WORKER_CALLS = ("claim", "targets", "finish", "extend", "asked_to_stop", "owed", "settle")
FAST = OwnerSettings(
    tick_within=1.0, sweep_every=1.5, letters_every=5.0, report_wait=0.01, days_every=1e9
)
NO_METRICS = NullMetrics()


class Scheduler(Process):
    """A scheduler: ownership, renewal and the owner's loop."""

    def __init__(self, world: World, name: str) -> None:
        kernel, db = world.kernel, world.db
        super().__init__(name, SimClock(kernel), world.rng(name))
        self.world = world
        observe = world.account.observe
        coordinator = MemoryCoordinator(world.etcd)
        etcd = port(kernel, self, "etcd", coordinator, ETCD_CALLS, self._at_etcd)
        etcd.watch, etcd.close = coordinator.watch, coordinator.close
        fence = port(kernel, self, "db", db.fence, FENCE_CALLS, observe)
        rows = SimOwnerStore(db, self)
        self.store = port(kernel, self, "db", rows, OWNER_CALLS, observe)
        zones = port(kernel, self, "db", db.zones, ZONE_CALLS, observe)
        self.ownership = Ownership(
            OwnershipSettings(
                name=name, partitions=PARTITIONS, ttl=TTL, renew_every=2.0, list_every=3.0,
                quiet=1.0, probe_every=2.0, weight=world.history.weight(name),
            ),
            etcd,
            fence,
            self.clock,
            healthy=self.healthy,
            wake=lambda: kernel.wake(self.keeping),
            changed=self.wake,
            rng=self.rng,
        )  # fmt: skip
        self.publisher = SimPublisher(world.bus, self)
        self.relay = Relay(
            self.store, self.publisher, route, encode_launch, self.clock, NO_METRICS,
            RelaySettings(PARTITIONS, outstanding=60),
        )  # fmt: skip
        box = LetterBox(SimPublisher(world.bus, self), lambda _queue: LETTERS, encode_dead_letter)
        self.reaper = Reaper(
            self.store, self.clock, NO_METRICS, ReaperSettings(lost_after=world.lost_after, rest=6)
        )
        parts = OwnerParts(
            Tick(self.store, NO_METRICS),
            self.relay,
            self.reaper,
            OwedLetters(self.store, box, NO_METRICS, older_than=world.owed_after),
            ZoneData(zones, NO_METRICS, version=world.zone_version()),
            Backfills(self.store, NO_METRICS),
        )
        self.owner = OwnerLoop(self.ownership, self.store, parts, self.clock, NO_METRICS, FAST)
        self.owning: Task = kernel.spawn(self, "owner", self.owner.run_once)
        self.keeping: Task = kernel.spawn(self, "ownership", self._keep)
        kernel.spawn(self, "renewal", self.ownership.renew_once)
        etcd.watch(self._hint)

    def healthy(self) -> bool:
        """As LoopThread tells: whether the owner's turn comes to an end."""
        now = self.world.kernel.now
        if self.owning.stuck:
            return now - self.owning.began <= STUCK_AFTER
        return not self.owning.busy or now - self.owning.began <= STUCK_AFTER

    def _keep(self) -> float:
        return self.ownership.run_once().next_in

    def _hint(self) -> None:
        kernel = self.world.kernel
        kernel.at(
            kernel.now + self.rng.choice((0.0, 0.01, 0.4)), lambda: kernel.wake(self.keeping), self
        )

    def _at_etcd(
        self, process: Process, call: str, args: tuple[object, ...], result: object
    ) -> None:
        if call == "claim":
            key = result
            created = key.create_revision == self.world.etcd.revision  # type: ignore[attr-defined]
            if key.identity == args[1] and created:  # type: ignore[attr-defined]
                self.world.account.keyed(process, key)  # type: ignore[arg-type]
        elif call != "renew":
            self.world.kernel.say(process.name, call)

    def wake(self) -> None:
        """A notification."""
        self.owner.wake()
        self.world.kernel.wake(self.owning)

    def stop(self) -> bool:
        """SIGTERM; False when it must wait for a turn that is under way."""
        if self.owning.busy or self.keeping.busy:
            return False
        for task in self.tasks:
            task.busy = True  # no loop turns any more
        self.owner.drain(1.0)
        self.ownership.stop(grace=0.0)
        return True


@dataclass
class SimExecutor:
    """`core.execution.Executor`: what a run does is drawn from the world's dice."""

    process: Worker
    kinds: frozenset[str] = frozenset({"noop"})

    def __post_init__(self) -> None:
        self.running: dict[Run, Done] = {}

    def start(self, run: Run, done: Done) -> None:
        world = self.process.world
        world.account.started(self.process, run)
        seconds, outcome = world.fate_of(run)
        self.running[run] = done
        if seconds > run.timeout:
            seconds, outcome = run.timeout, Outcome(ok=False, outcome="timed_out", certain=False)
        kernel = world.kernel
        kernel.at(kernel.now + seconds, lambda: self._end(run, outcome), self.process)

    def cancel(self, run: Run, reason: str) -> None:
        if reason == CLAIM_LOST and run in self.running:
            self.process.world.account.gave_up(self.process, run)
        self._end(run, Outcome(ok=False, outcome=reason, certain=False))

    def close(self, grace: float) -> None:
        del grace
        for run in list(self.running):
            self._end(run, Outcome(ok=False, outcome="interrupted", certain=False))

    def _end(self, run: Run, outcome: Outcome) -> None:
        done = self.running.pop(run, None)
        if done is not None:
            self.process.world.account.effects.ends(run)
            done(run, outcome)
            self.process.ended()


class Worker(Process):
    """A worker: intake, finisher and heartbeat."""

    def __init__(self, world: World, name: str) -> None:
        kernel = world.kernel
        super().__init__(name, SimClock(kernel), world.rng(name))
        self.world = world
        account = world.account
        self.store = port(
            kernel, self, "db", SimWorkerStore(world.db), WORKER_CALLS, account.observe
        )
        self.consumer = SimConsumer(world.bus, GROUP, self, account.committed)
        box = LetterBox(SimPublisher(world.bus, self), lambda _queue: LETTERS, encode_dead_letter)
        self.executor = SimExecutor(self)

        def post(owed: Sequence[OwedLetter]) -> list[tuple[LaunchId, datetime, int]]:
            return box.post(owed, 2.0)

        self.runs = Runs(
            self.store,
            [self.executor],
            self.clock,
            NO_METRICS,
            RunsSettings(gather=0.0),
            offset_done=lambda place, offset: self.intake.offset_done(place, offset),  # noqa: PLW0108 - made below
            letters=post,
        )
        weights = {launch_topic(PREFIX, QUEUE, p): WEIGHTS[p] for p in PRIORITIES}
        weights[retry_topic(PREFIX, QUEUE)] = 2
        self.intake = Intake(
            self.consumer,
            self.store,
            self.runs,
            self.clock,
            NO_METRICS,
            IntakeSettings(name, TOPICS, concurrency=4, weights=weights, window=20),
            decode=decode_launch,
            bury=_nothing_is_buried,
        )
        self.taking: Task = kernel.spawn(self, "intake", self._take)
        self.finishing: Task = kernel.spawn(self, "finish", self._finish)
        kernel.spawn(self, "heartbeat", self._beat)
        kernel.spawn(self, "watch", self._watch)

    def _take(self) -> float:
        return 0.3 if self.intake.run_once(0.0) else 2.0

    def _finish(self) -> float:
        if self.runs.finish_once(0.0):
            self.world.kernel.wake(self.taking)
            return 0.3
        return 3.0

    def _beat(self) -> float:
        self.runs.heartbeat_once()
        return 1.0 if self.runs.count else 2.5

    def _watch(self) -> float:
        return 2 * self.runs.watch_once() if self.runs.count else 3.0

    def ended(self) -> None:
        """A run has ended."""
        self.world.kernel.wake(self.finishing)

    def stop(self) -> bool:
        """SIGTERM; False when it must wait for a turn that is under way."""
        if any(task.busy for task in self.tasks):
            return False
        for task in self.tasks:
            task.busy = True
        self.intake.close_intake()
        self.runs.close(0.0)
        while self.runs.count and self.runs.finish_once(0.0):
            pass
        self.intake.finish()
        return True


def _nothing_is_buried(letter: UndecodableLetter) -> None:
    raise AssertionError(f"undecodable: {letter}")
