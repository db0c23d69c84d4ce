"""What happened, kept apart from the code under test, and what must hold of it after each step.

The rules are those of docs/simulation.md, by name. A row of the mirror is what the last observed
call left; a call's own changes are the difference to it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.effects import Effects
from tests.simulation.kafka import SimBus
from tests.simulation.kernel import Kernel, Process
from tests.simulation.redrives import RedriveRules
from tests.simulation.servers import SimDatabase
from tests.simulation.violation import Violation
from tests.support.memory_bus import Stored
from tests.support.memory_tables import LaunchRow

from tickrail.bus.codec import decode_launch
from tickrail.core.execution import Run
from tickrail.core.ids import Epoch, Partition
from tickrail.core.limits import PAUSED
from tickrail.core.ports import Publication
from tickrail.core.ports_ownership import OwnerKey
from tickrail.core.states import State


class Seen(NamedTuple):
    """A launch as an observed call left it."""

    state: State
    attempt: int
    claim: int | None
    expires: datetime | None
    failures: int
    cancel: bool
    partition: int
    redrives: int


DEAD = frozenset({"succeeded", "dead", "abandoned", "cancelled", "expired"})
BUSY = frozenset({"due", "queued", "running"})
READS = frozenset(
    ("queued", "backlog", "owed", "dead_letters", "versions", "highest_epoch", "generation",
     "database_now", "asked_to_stop", "make_days")
)  # fmt: skip
FENCED = frozenset(
    ("tick", "resume", "complete", "backfill", "mark_queued", "mark_unpublishable", "sweep",
     "reap", "rezone", "store_version", "rouse")
)  # fmt: skip
NEW = "new"
OUTAGE, OUTAGE_SEEN, REST = 5.0, 2.5, 6.0
"""What is an outage, how long a process looks before it, how long the reaper rests: seconds."""
MOVES: dict[str, set[tuple[str, str]]] = {
    "tick": {(NEW, "due"), (NEW, "held"), ("held", "cancelled"), ("due", "cancelled"),
             ("queued", "cancelled"), ("running", "cancelled")},
    "backfill": {(NEW, "due"), (NEW, "held")},
    "mark_queued": {("due", "queued")},
    "mark_unpublishable": {("due", "dead")},
    "sweep": {("held", "due"), ("held", "expired"), ("due", "expired"),
              ("queued", "expired"), ("queued", "due")},
    "reap": {("running", s) for s in ("due", "dead", "abandoned", "cancelled")},
    "claim": {("due", "running"), ("queued", "running"), ("queued", "due")},
    "finish": {("running", s) for s in ("succeeded", "due", "dead", "abandoned", "cancelled")},
    "api": {(NEW, "due"), (NEW, "held"), ("held", "cancelled"), ("due", "cancelled"),
            ("queued", "cancelled"), ("running", "cancelled")},
}  # fmt: skip


class Account:
    """The mirror of the tables, the messages, the starts, the epochs."""

    def __init__(self, kernel: Kernel, db: SimDatabase, bus: SimBus, letters: str) -> None:
        self.kernel = kernel
        self.db = db
        self.bus = bus
        self.others: Callable[[Process], Iterable[tuple[str, Mapping[Partition, Epoch]]]]
        self.others = lambda _process: ()
        self.leases_were_taken = False
        self.database_clock_moved = False
        self.outages: list[tuple[float, float]] = []
        self.counts: Counter[str] = Counter()
        self.letters: set[tuple[UUID, int]] = set()
        self.effects = Effects(kernel)
        self.redrives = RedriveRules()
        self._letters_topic = letters
        self._launches: dict[UUID, Seen] = {}
        self._jobs: dict[UUID, tuple[Any, ...]] = {}
        self._backfills: dict[UUID, tuple[Any, ...]] = {}
        self._ids: dict[tuple[UUID, datetime, str], UUID] = {}
        self._fence: dict[int, int] = defaultdict(int)
        self._raised_by: dict[tuple[int, int], str] = {}
        self._acknowledged: set[tuple[UUID, int]] = set()
        self._copies: Counter[tuple[UUID, int]] = Counter()
        self._asked: set[tuple[UUID, int]] = set()
        self._refused: set[tuple[UUID, int]] = set()
        self._extended: set[int] = set()
        self._highest: dict[UUID, int] = {}
        self._granted_at: dict[int, float] = {}
        self._numbers: set[int] = set()
        self._starts: dict[UUID, list[int]] = defaultdict(list)
        self._certain: set[int] = set()
        self._excused: set[UUID] = set()
        self._together: set[UUID] = set()
        self._committed: dict[tuple[str, int], int] = defaultdict(int)
        bus.arrived = self._arrived
        bus.acknowledged = self._acknowledge

    # --- calls ------------------------------------------------------------------------------------

    def observe(self, process: Process, call: str, args: tuple[Any, ...], result: Any) -> None:
        """A call has had its effect on the database."""
        if call in READS or _says_nothing(call, result):
            return
        if call == "raise_epoch":
            self._raised(process, *args, result)
            return
        if call == "claim":
            self._claims(process, args[0], result)
        if call == "extend":
            self._extended.update(c.claim for c in args[0] if c.id in result.held)
        self._take_in(process, call, args)

    def _raised(
        self, process: Process, partition: int, epoch: int, owner: str, outcome: str
    ) -> None:
        self.kernel.say(process.name, "raise", partition, epoch & 0xFFFFFF, outcome)
        if outcome == "higher":
            return
        if epoch < self._fence[partition]:
            raise Violation("epochs grow", f"{epoch} after {self._fence[partition]}")
        other = self._raised_by.setdefault((partition, epoch), owner)
        if other != owner:
            raise Violation(
                "an epoch has one owner", f"{epoch} of partition {partition}: {other}, {owner}"
            )
        self._fence[partition] = epoch

    def keyed(self, process: Process, key: OwnerKey) -> None:
        """An owner key was made for this process."""
        self.kernel.say(process.name, "key", key.partition, key.create_revision)
        if self.leases_were_taken:
            return
        for name, owned in self.others(process):
            if key.partition in owned:
                raise Violation(
                    "one trusts", f"{process.name} gets partition {key.partition}, {name} trusts"
                )

    def _acknowledge(self, token: object) -> None:
        """The bus has confirmed a message."""
        if isinstance(token, Publication):
            self._acknowledged.add((token.id, token.attempt))

    def _arrived(self, topic: str, partition: int, offset: int, message: Stored) -> None:
        del partition, offset
        if topic == self._letters_topic:
            letter = json.loads(message.value)
            self.letters.add((UUID(letter["launch"]), letter["attempt"]))
            return
        m = decode_launch(message.value)
        self._copies[m.launch, m.attempt] += 1

    def _claims(self, process: Process, requests: Iterable[Any], answer: Any) -> None:
        granted = {c.id: c for c in answer.granted}
        now = self.db.clock.now()
        for r in requests:
            self._asked.add((r.id, r.attempt))
            before = self._launches.get(r.id)
            claim = granted.get(r.id)
            if answer.refused.get(r.id) == PAUSED:
                if self.db.launches[r.id].queue not in self.db.paused_queues:
                    raise Violation("a good message is not refused", self._name(r.id))
                self._refused.add((r.id, r.attempt))
                continue
            if claim is None:
                self._refused.add((r.id, r.attempt))
                row = self.db.launches.get(r.id)
                if (
                    before is not None
                    and row is not None
                    and before.state in ("due", "queued")
                    and before.attempt == r.attempt
                    and row.due_at <= now
                    and (r.attempt > 1 or row.start_before is None or row.start_before > now)
                ):
                    raise Violation("a good message is not refused", self._name(r.id))
                continue
            if before is None or before.attempt != r.attempt or claim.due_at > now:
                raise Violation(
                    "a claim is for the attempt asked for", f"{self._name(r.id)} {r.attempt}"
                )
            self._granted(process, r.id, claim.claim)

    @property
    def _numbers_may_repeat(self) -> bool:
        """After two failovers in a row, or where the database's clock was set back."""
        return self.db.restores > 1 or self.database_clock_moved

    def _granted(self, process: Process, launch: UUID, claim: int) -> None:
        self.kernel.say(process.name, "claimed", self._name(launch), claim)
        known = self._numbers_may_repeat
        if claim in self._numbers and not known:
            raise Violation("claims grow", f"{self._name(launch)}: {claim} once more")
        if claim <= self._highest.get(launch, -1) and not known:
            raise Violation(
                "claims grow", f"{self._name(launch)}: {claim} after {self._highest[launch]}"
            )
        self._numbers.add(claim)
        self._highest[launch] = claim
        self._granted_at[claim] = self.kernel.now

    def committed(self, process: Process, topic: str, partition: int, offset: int) -> None:
        """The group's position was stored."""
        if topic in self.bus.truncated:  # offsets came again
            return
        log = self.bus.logs[topic][partition]
        for at in range(self._committed[topic, partition], min(offset, len(log))):
            message = log[at]
            if message is None:
                continue
            m = decode_launch(message.value)
            key = (m.launch, m.attempt)
            row = self._launches.get(m.launch)
            if key not in self._asked:
                raise Violation(
                    "no offset above an open one",
                    f"{process.name} commits {offset} of {topic} {partition}, {at} was never asked",
                )
            if (
                row is not None
                and row.state == "running"
                and row.attempt == m.attempt
                and row.claim not in self._extended
                and key not in self._refused
                and self._copies[key] == 1
                and m.launch not in self._excused
            ):
                raise Violation(
                    "no offset above an open one",
                    f"{process.name} commits {offset} of {topic} {partition}, {at} runs",
                )
        self._committed[topic, partition] = max(self._committed[topic, partition], offset)

    def topic_gone(self, topic: str) -> None:
        """A topic was deleted: its offsets begin again."""
        for place in [p for p in self._committed if p[0] == topic]:
            del self._committed[place]

    # --- runs -------------------------------------------------------------------------------------

    def started(self, process: Process, run: Run) -> None:
        """An executor begins with a run."""
        self.counts["starts"] += 1
        row = self.db.launches.get(run.launch_id)  # type: ignore[call-overload]
        name = self._name(run.launch_id)
        self.kernel.say(process.name, "starts", name, run.attempt, run.claim)
        known = run.launch_id in self._excused or self.database_clock_moved
        taken = row is not None and row.state.value == "cancelled"
        if not known and not taken and (row is None or row.claim != run.claim):
            raise Violation("no start without a live claim", name)
        if row is not None and row.claim == run.claim and row.state.value not in (
            "running", "cancelled"
        ) and not known:  # fmt: skip
            raise Violation("no start without a live claim", f"{name} is {row.state}")
        earlier = self._starts[run.launch_id]
        if run.claim in earlier and not self._numbers_may_repeat:
            raise Violation("a claim starts one run", name)
        if row is not None and not row.rerun and not known:
            for claim in earlier:
                if claim not in self._certain:
                    raise Violation("skip: not again after an uncertain end", name)
        if earlier:
            self.counts["started again"] += 1
        if self.effects.begins(process, run, excused=known):
            self.counts["ran twice at once"] += 1
        earlier.append(run.claim)

    def gave_up(self, process: Process, run: Run) -> None:
        """A worker stops a run, since it could not keep its claim."""
        row = self.db.launches.get(run.launch_id)  # type: ignore[call-overload]
        lost = row is None or row.claim != run.claim or row.state.value != "running"
        known = run.launch_id in self._excused or self.kernel.noise or self.database_clock_moved
        if not lost and not known and process.disturbed_until < self._granted_at[run.claim]:
            raise Violation("a claim is kept", f"{self._name(run.launch_id)} at {process.name}")

    # --- differences ------------------------------------------------------------------------------

    def _take_in(self, process: Process, call: str, args: tuple[Any, ...]) -> None:
        owned = args[0] if call in FENCED else None
        changed_jobs: set[UUID] = set()
        known = self._launches
        for launch, row in self.db.launches.items():
            before = known.get(launch)
            if before is not None and before.state in DEAD and row.state is before.state:
                continue
            now = _seen(row)
            if before == now:
                continue
            changed_jobs.add(row.job_id)
            self._launches[launch] = now
            self._moved(process, call, row, before, now, args)
            self._fenced(process, call, owned, now.partition)
        for job, j in self.db.jobs.items():
            seen = (j.next_run_at, j.last_slot_at, j.state, j.awaits, j.launched)
            if self._jobs.get(job) != seen:
                last = self._jobs.get(job, (None, None))[1]
                if last is not None and (j.last_slot_at is None or j.last_slot_at < last):
                    raise Violation("slots go forward", f"{j.name}: {j.last_slot_at} after {last}")
                self._jobs[job] = seen
                self._fenced(process, call, owned, j.partition)
        for key, b in self.db.backfills.items():
            told = (b.state, b.backfill.cursor_at, b.backfill.launched)
            if self._backfills.get(key) != told:
                self._backfills[key] = told
                self._fenced(process, call, owned, self.db.jobs[b.job_id].partition)
        self._overlaps(changed_jobs)

    def _fenced(
        self, process: Process, call: str, owned: Mapping[Partition, Epoch] | None, partition: int
    ) -> None:
        if owned is None:
            return
        epoch = owned.get(Partition(partition))
        if epoch != self._fence[partition]:
            raise Violation(
                "no deposed write lands",
                f"{process.name} {call} in partition {partition} with {epoch},"
                f" the fence is {self._fence[partition]}",
            )

    def _moved(
        self,
        process: Process,
        call: str,
        row: LaunchRow,
        before: Seen | None,
        now: Seen,
        args: tuple[Any, ...],
    ) -> None:
        name = self._name(row.id)
        old = NEW if before is None else before.state
        self.kernel.say(process.name, call, name, f"{old} -> {now.state}", f"attempt {now.attempt}")
        if before is None:
            self._is_new(row, name)
        elif call == "redrive" and old != now.state:
            self.redrives.redriven(row.id, name, before, now)
            self.counts["redriven"] += 1
            self._certain.update(self._starts[row.id])  # who redrives answers for what ran before
            return
        elif before.state in DEAD:
            if before[:3] != now[:3]:
                raise Violation("an end is final", f"{name}: {old} -> {now.state} by {call}")
            return
        if old != now.state and (old, now.state) not in MOVES.get(call, ()):
            raise Violation("allowed moves", f"{name}: {old} -> {now.state} by {call}")
        if before is None:
            return
        self._attempts(call, name, before, now, row.max_attempts)
        if now.state == "queued" and (row.id, now.attempt) not in self._acknowledged:
            raise Violation("queued is published", f"{name} attempt {now.attempt}")
        if before.cancel and now.state == "due":
            raise Violation("nothing starts after a cancel", f"{name} is due again")
        if old != now.state:
            self._ended(process, call, row.id, name, before, args)

    def _is_new(self, row: LaunchRow, name: str) -> None:
        slot = (row.job_id, row.scheduled_at, row.origin)
        known = self._ids.setdefault(slot, row.id)
        if known != row.id:
            raise Violation("a slot has one record", f"{name}: {row.id} and {known}")
        if row.attempt != 1:
            raise Violation("attempts", f"{name} begins with {row.attempt}")

    def _attempts(self, call: str, name: str, before: Seen, now: Seen, most: int) -> None:
        step = now.attempt - before.attempt
        again = before.state == "running" and now.state == "due"
        if step != (1 if again else 0):
            raise Violation("attempts", f"{name}: {before.attempt} -> {now.attempt} by {call}")
        failed = now.failures - before.failures
        lost = call == "reap" and now.state not in ("cancelled", before.state)
        if failed not in (0, 1) or (lost and failed == 0):
            raise Violation("attempts", f"{name}: failures {before.failures} -> {now.failures}")
        if again and now.failures >= most:
            raise Violation("attempts", f"{name} goes on after {now.failures} failures of {most}")
        if before.state == now.state == "running" and before.claim != now.claim:
            raise Violation("a claim is not taken over", name)

    def _reaped(self, process: Process, name: str) -> None:
        """Who saw the whole of an outage lets workers extend first."""
        for began, ended in self.outages:
            seen = process.began < began - OUTAGE_SEEN and process.held_up_until < began
            if seen and ended - began > OUTAGE + 0.5 and 0 < self.kernel.now - ended < REST:
                raise Violation("the reaper rests after an outage", f"{process.name}: {name}")

    def _ended(
        self,
        process: Process,
        call: str,
        launch: UUID,
        name: str,
        before: Seen,
        args: tuple[Any, ...],
    ) -> None:
        early = before.expires is not None and before.expires >= self.db.clock.now()
        if call == "reap" and early and not self.database_clock_moved:
            raise Violation("only expired claims are reaped", name)
        if call == "reap":
            self._reaped(process, name)
        if call != "finish":
            return
        ends = [e for e in args[0] if e.id == launch and e.claim == before.claim]
        if not ends:
            raise Violation("only the claim's result counts", name)
        if ends[-1].certain:
            self._certain.add(ends[-1].claim)

    def _overlaps(self, jobs: set[UUID]) -> None:
        for job in jobs:
            row = self.db.jobs[job]  # type: ignore[index]
            if '"overlap": "allow"' in row.plan:
                continue
            busy = [x for x in self.db.launches.values()
                    if x.job_id == job and x.state.value in BUSY]  # fmt: skip
            if len(busy) > 1 and not self._together >= {x.id for x in busy}:
                raise Violation("overlap", f"{row.name}: {[self._name(x.id) for x in busy]}")

    def was_allowed(self, job: UUID) -> None:
        """What is open of this job may overlap, whatever its policy is from now on."""
        busy = (
            x.id for x in self.db.launches.values() if x.job_id == job and x.state.value in BUSY
        )
        self._together.update(busy)

    # --- the database goes back -------------------------------------------------------------------

    def restored(self) -> None:
        """The database has lost its last transactions; what was seen of them is forgotten."""
        now = {launch: _seen(row) for launch, row in self.db.launches.items()}
        for launch in self._launches.keys() | now.keys():
            if self._launches.get(launch) != now.get(launch):
                self._excused.add(launch)
        self._launches = now
        self._jobs = {
            job: (j.next_run_at, j.last_slot_at, j.state, j.awaits, j.launched)
            for job, j in self.db.jobs.items()
        }
        self._backfills = {
            k: (b.state, b.backfill.cursor_at, b.backfill.launched)
            for k, b in self.db.backfills.items()
        }
        self._fence.update({int(p): int(e) for p, e in self.db.fence.epochs.items()})
        # Where etcd goes back too, nobody is left who knows of the later epochs.
        self._raised_by = {k: o for k, o in self._raised_by.items() if k[1] <= self._fence[k[0]]}

    def _name(self, launch: UUID) -> str:
        row = self.db.launches.get(launch)  # type: ignore[call-overload]
        if row is None:
            return str(launch)[:8]
        kind = row.origin.split(":")[0]
        return f"{self.db.jobs[row.job_id].name}@{row.scheduled_at:%M:%S}/{kind}"


def _says_nothing(call: str, result: Any) -> bool:
    """Whether a call says that it changed nothing; if that is not so, the next one shows it."""
    if call in ("tick", "resume", "complete"):
        return not result.jobs
    if call in ("sweep", "reap"):
        return not result.total
    if call == "backfill":
        return not (result.inserted or result.ended or result.left_alone or result.more)
    return False


def _seen(row: LaunchRow) -> Seen:
    return Seen(
        row.state,
        row.attempt,
        row.claim,
        row.claim_expires_at,
        row.failures,
        row.cancel_requested,
        row.partition,
        row.redrive_count,
    )
