"""Judges the history of a fault test: `python -m tests.fault.checker FILE`.

Pure over the lines of a history (tests/fault/history.py says what they are), so that a saved one
can be judged again. What holds:

  nothing        there are jobs, each is made in the history, and slots of theirs come to be due
  one_record     a slot has one record for ever: a launch with the id of its slot, or a skip
  lost_slot      each slot up to the end has a launch record or a skip record
  made_up        what is launched or skipped by the schedule are slots of the job
  early          nothing is launched, skipped or run before its slot
  deposed        an owner writes only under the epoch last raised, and only who raised it
  epochs         a raise is higher than all before
  moves          states change as core/states.py allows, by who may change them
  attempts       the number goes up by one, at a retry or a redrive, and never otherwise
  claims         a launch is claimed when due or queued, under a higher number; a claim that is
                 held is not taken away; an attempt ends under the claim that it had
  effects        a success has an effect; a claim has at most one; a doubled one is explained and
                 none at all where a doubled run is worse
  tokens         the receiver accepts growing tokens; what it refuses is explained
  unfinished     every launch up to the end has ended
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.fault.judgement import Breach, Doubled, Judgement, Line, report
from tests.fault.slots import Slots

from tickrail.core.ids import ORIGIN_SCHEDULE, JobId, launch_id
from tickrail.core.states import MOVES, TERMINAL, Actor, State

ACTORS = {"scheduler": Actor.OWNER, "worker": Actor.WORKER}
"""Who a service is; anybody else (the API, the test itself) is an API."""
EXCLUDED = "excluded"
"""The reason of a skip record whose first and last instant have launched slots between them."""
EARLY = timedelta(milliseconds=500)
"""By how much an instant may seem to lie before another, for clocks that are set meanwhile."""
LOSES_TRANSACTIONS = "database_failover"
"""The fault after which what was committed may be gone: it explains every doubled effect."""


@dataclass
class _Launch:
    """A launch as its lines tell."""

    job: str
    row: dict[str, Any]
    rerun: bool
    workers: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Claim -> worker, and when it was made."""
    uncertain: set[int] = field(default_factory=set)
    """Claims that ended without its being known whether the effect happened."""
    succeeded: bool = False


class _Checker:
    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)
        self.found = Judgement()
        self.header = self.only("header")
        self.end = datetime.fromisoformat(self.only("end")["last"])
        self.jobs = {line["id"]: line for line in self.of("job")}
        self.faults = self.of("fault")
        self.writes = sorted(self.of("write"), key=lambda w: w["n"])
        self.launches: dict[str, _Launch] = {}
        self.slots: dict[tuple[str, datetime], list[str]] = defaultdict(list)
        self.skipped: dict[str, list[Line]] = defaultdict(list)
        self.made: dict[str, Slots | None] = {}
        """The slots of each job whose beginning was seen; None where it waits for none."""
        self.raised: dict[int, tuple[int, str]] = {}

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]

    def only(self, kind: str) -> Line:
        found = self.of(kind)
        if len(found) != 1:
            raise ValueError(f"a history has one line of kind {kind!r}, and not {len(found)}")
        return found[0]

    def breach(self, rule: str, what: str, line: Line | None = None) -> None:
        self.found.breaches.append(Breach(rule, what, line))

    def actor(self, write: Line) -> Actor:
        return ACTORS.get(self.header["services"].get(write["app"], ""), Actor.API)

    def run(self) -> Judgement:
        for write in self.writes:
            self._fence(write)
            {
                "launches": self._launch,
                "attempts": self._attempt,
                "skips": self._skip,
                "jobs": self._job,
                "partitions": self._raise,
            }[write["table"]](write)
        self._slots()
        self._ends()
        self._effects()
        self._recovery()
        self.found.counts.update(
            launches=len(self.launches),
            effects=len(self.of("effect")),
            writes=len(self.writes),
            faults=len(self.faults),
        )
        return self.found

    # --- ownership --------------------------------------------------------------------------------

    def _fence(self, write: Line) -> None:
        """A write of an owner's loop lands only under the fence that it raised."""
        if self.actor(write) is not Actor.OWNER or _is_raise(write):
            return
        old, new = write["old"], write["new"]
        if write["table"] == "launches" and old and new and _differ(old, new) <= {"dlq_owed"}:
            return  # that a dead letter is published may be noted by anybody
        fence = write["fence"]
        if fence is None:
            self.breach("deposed", "a write to no partition", write)
            return
        epoch, app = self.raised.get(fence["partition"], (0, ""))
        if fence["epoch"] != epoch or app != write["app"]:
            self.breach(
                "deposed",
                f"{write['app']} wrote to partition {fence['partition']} under epoch"
                f" {fence['epoch']}; the last was {epoch}, raised by {app or 'nobody'}",
                write,
            )
        if write["table"] == "launches" and write["op"] == "insert" and new["epoch"] != epoch:
            self.breach("deposed", f"a record of epoch {new['epoch']} under epoch {epoch}", write)

    def _raise(self, write: Line) -> None:
        old, new = write["old"], write["new"]
        if not _is_raise(write):
            return
        before = max(self.raised.get(new["partition"], (0, ""))[0], old["epoch"] if old else 0)
        if new["epoch"] <= before:
            self.breach("epochs", f"epoch {new['epoch']} after {before}", write)
        self.raised[new["partition"]] = (new["epoch"], write["app"])
        self.found.counts["raises"] = self.found.counts.get("raises", 0) + 1

    # --- launches ---------------------------------------------------------------------------------

    def _launch(self, write: Line) -> None:
        old, new = write["old"], write["new"]
        if write["op"] == "insert":
            self._insert(write)
        elif write["op"] == "delete":
            self.breach("one_record", f"the record of launch {old['id']} was deleted", write)
        else:
            self._move(write)
            self._number(write)
            self._claim(write)
            launch = self.launches.get(new["id"])
            if launch is not None:
                launch.row = new
                launch.succeeded |= new["state"] == State.SUCCEEDED

    def _insert(self, write: Line) -> None:
        new = write["new"]
        if new["id"] in self.launches:
            self.breach("one_record", f"launch {new['id']} was inserted twice", write)
        self.launches[new["id"]] = _Launch(new["job_id"], new, new["rerun"])
        if new["origin"] == ORIGIN_SCHEDULE:
            slot = datetime.fromisoformat(new["scheduled_at"])
            self.slots[new["job_id"], slot].append(new["id"])
            right = launch_id(JobId(UUID(new["job_id"])), slot, ORIGIN_SCHEDULE)
            self._not_early(new["scheduled_at"], write["at"], "a launch record", write)
            if new["id"] != str(right):
                self.breach("one_record", f"launch {new['id']} should have the id {right}", write)
        if new["state"] not in {State.DUE, State.HELD} or new["attempt"] != 1:
            self.breach("moves", f"a launch begins as {new['state']}", write)

    def _move(self, write: Line) -> None:
        old, new = State(write["old"]["state"]), State(write["new"]["state"])
        if old is new:
            return
        actor = self.actor(write)
        if actor not in MOVES.get((old, new), frozenset()):
            who = f"{write['app'] or 'somebody'} as {actor.value}"
            self.breach("moves", f"{old} -> {new} by {who}", write)

    def _number(self, write: Line) -> None:
        old, new = write["old"], write["new"]
        step = new["attempt"] - old["attempt"]
        move = (State(old["state"]), State(new["state"]))
        again = move == (State.RUNNING, State.DUE) or (
            move[0] in {State.DEAD, State.ABANDONED} and move[1] in {State.DUE, State.HELD}
        )
        if step != int(again):
            self.breach(
                "attempts", f"attempt {old['attempt']} -> {new['attempt']} at {'->'.join(move)}",
                write,
            )  # fmt: skip

    def _claim(self, write: Line) -> None:
        old, new = write["old"], write["new"]
        starts = old["state"] != State.RUNNING and new["state"] == State.RUNNING
        if starts:
            if new["claim"] is None or new["claim"] <= (old["claim"] or 0):
                self.breach("claims", f"claim {new['claim']} after {old['claim']}", write)
            launch = self.launches.get(new["id"])
            if launch is not None and new["claim"] is not None:
                launch.workers[new["claim"]] = (write["app"], write["at"])
        elif new["claim"] != old["claim"]:
            self.breach("claims", f"claim {old['claim']} became {new['claim']}", write)

    def _attempt(self, write: Line) -> None:
        new = write["new"]
        if write["op"] == "update" and _differ(write["old"], new) == {"stale_result"}:
            return  # it was noted beside the attempt and changed nothing
        launch = self.launches.get(new["launch_id"]) if new else None
        if launch is None or write["op"] != "insert":
            self.breach("attempts", "the record of an attempt is not an addition", write)
            return
        if new["claim"] != launch.row["claim"]:
            # Its own transaction has moved the launch already, and leaves the claim there.
            self.breach(
                "claims", f"an attempt of claim {new['claim']} ended under {launch.row['claim']}",
                write,
            )  # fmt: skip
        if not new["certain"]:
            launch.uncertain.add(new["claim"])

    def _skip(self, write: Line) -> None:
        new = write["new"]
        if write["op"] != "insert":
            self.breach("one_record", f"a skip record had an {write['op']}", write)
            return
        self.skipped[new["job_id"]].append(new)
        self._not_early(new["last_at"], write["at"], "a skip record", write)

    def _not_early(self, slot: str, at: str, what: str, line: Line) -> None:
        early = datetime.fromisoformat(slot) - datetime.fromisoformat(at)
        if early > EARLY:
            self.breach("early", f"{what} {early.total_seconds():g} s before its slot", line)

    def _job(self, write: Line) -> None:
        new = write["new"]
        if write["op"] == "insert" and new["id"] in self.jobs:
            first = new["next_run_at"]
            self.made[new["id"]] = (
                None
                if first is None
                else Slots(self.jobs[new["id"]], datetime.fromisoformat(first))
            )

    # --- at the end -------------------------------------------------------------------------------

    def _slots(self) -> None:
        for (job, slot), ids in self.slots.items():
            if len(ids) > 1:
                self.breach("one_record", f"slot {slot} of job {job} has {len(ids)} records")
            slots = self.made.get(job)
            if job not in self.jobs or (slots is not None and not slots.may_be(slot)):
                self.breach("made_up", f"{slot} is no slot of job {job}", self.launches[ids[0]].row)
        for job, line in self.jobs.items():
            if job not in self.made:
                self.breach("nothing", f"nobody saw how job {job} began", line)
        known = {job: slots for job, slots in self.made.items() if slots is not None}
        self.found.counts.update(slots=0, skipped=0)
        for job, slots in known.items():
            self._slots_of(job, slots)
        told = not self.jobs or any(slots.told for slots in known.values())
        if told and not self.found.counts["slots"]:
            self.breach("nothing", "no slot of any job up to the end")

    def _slots_of(self, job: str, slots: Slots) -> None:
        skipped = self._skipped(job, slots)
        excluded = [_range(x) for x in self.skipped[job] if x["reason"] == EXCLUDED]
        for slot in slots.due(self.end):
            self.found.counts["slots"] += 1
            self.found.counts["skipped"] += slot in skipped
            if (job, slot) in self.slots or slot in skipped:
                continue
            if not any(first <= slot <= last for first, last in excluded):
                self.breach("lost_slot", f"slot {slot} of job {job} has no record")

    def _skipped(self, job: str, slots: Slots) -> set[datetime]:
        """The slots of a job in its skip records, each in one alone and in no launch record."""
        found: set[datetime] = set()
        for skip in self.skipped[job]:
            first, last = _range(skip)
            if skip["reason"] == EXCLUDED:
                continue
            if not (slots.may_be(first) and slots.may_be(last)):
                self.breach("made_up", f"a skip of what is no slot of job {job}", skip)
            for slot in slots.between(first, last):
                if slot in found:
                    self.breach("one_record", f"slot {slot} of job {job} is skipped twice", skip)
                if (job, slot) in self.slots:
                    self.breach("one_record", f"slot {slot} of job {job} is launched too", skip)
                found.add(slot)
        return found

    def _ends(self) -> None:
        for key, launch in self.launches.items():
            slot = datetime.fromisoformat(launch.row["scheduled_at"])
            if slot <= self.end and State(launch.row["state"]) not in TERMINAL:
                self.breach("unfinished", f"launch {key} is {launch.row['state']}", launch.row)

    # --- effects ----------------------------------------------------------------------------------

    def _effects(self) -> None:
        effects: dict[str, list[Line]] = defaultdict(list)
        for line in sorted(self.of("effect"), key=lambda e: e["begin"]):
            effects[line["key"]].append(line)
        for key, those in effects.items():
            launch = self.launches.get(key)
            if launch is None:
                self.breach("effects", f"an effect of launch {key}, which is not there", those[0])
            else:
                self._effects_of(key, launch, those)
        for key, launch in self.launches.items():
            wanted = launch.succeeded and self.jobs.get(launch.job, {}).get("effects")
            if wanted and not any(e["accepted"] for e in effects[key]):
                self.breach("effects", f"launch {key} succeeded without an effect", launch.row)

    def _effects_of(self, key: str, launch: _Launch, those: Sequence[Line]) -> None:
        highest = 0
        for e in those:
            self._not_early(launch.row["scheduled_at"], e["begin"], "an effect", e)
            if e["token"] not in launch.workers and not self._lost(e):
                self.breach("effects", f"launch {key} was not claimed as {e['token']}", e)
            if e["accepted"] and e["token"] < highest:
                self.breach("tokens", f"token {e['token']} was accepted after {highest}", e)
            highest = max(highest, e["token"])
        tokens = [e["token"] for e in those]
        for token in sorted({t for t in tokens if tokens.count(t) > 1}):
            again = [e for e in those if e["token"] == token]
            self.breach("effects", f"launch {key} has two effects of claim {token}", again[1])
        # In the order of the claims: each that came before the last one needs an explanation.
        ordered = sorted(those, key=lambda e: e["token"])
        for earlier, later in pairwise(ordered):
            why = self._why(launch, earlier, later)
            if why is None:
                self.breach(
                    "effects", f"launch {key}: claim {later['token']} repeats the effect of"
                    f" {earlier['token']} for no known reason", later,
                )  # fmt: skip
            elif not launch.rerun and not why.startswith(LOSES_TRANSACTIONS):
                self.breach("effects", f"launch {key} must not run twice", later)
            else:
                self.found.doubled.append(Doubled(key, later["token"], why, later["accepted"]))
        for e in those:
            if not e["accepted"] and self._fault_of(launch, e["token"], e["begin"]) is None:
                self.breach("tokens", f"token {e['token']} came late for no known reason", e)

    def _lost(self, effect: Line) -> bool:
        """Whether the claim of this effect may be among the transactions that were lost."""
        return any(
            f["name"] == LOSES_TRANSACTIONS and effect["begin"] <= _ended(f) for f in self.faults
        )

    def _why(self, launch: _Launch, earlier: Line, later: Line) -> str | None:
        """Why the launch ran again although the effect had happened."""
        until = launch.workers.get(later["token"], ("", later["begin"]))[1]
        failover = [f for f in self.faults if f["name"] == LOSES_TRANSACTIONS and f["at"] <= until]
        if failover:
            return f"{LOSES_TRANSACTIONS} at {failover[0]['at']}"
        fault = self._fault_of(launch, earlier["token"], until)
        if fault is not None:
            return f"{fault['name']} of {fault['victim']} at {fault['at']}"
        if earlier["token"] in launch.uncertain:
            return "the attempt before ended uncertain"
        return None

    def _fault_of(self, launch: _Launch, token: int, until: str) -> Line | None:
        """A fault of the worker that held this claim, between the claim and then."""
        worker, since = launch.workers.get(token, ("", until))
        for fault in self.faults:
            if fault["victim"] == worker and since <= _ended(fault) and fault["at"] <= until:
                return fault
        return None

    # --- time to recover --------------------------------------------------------------------------

    def _recovery(self) -> None:
        inserts = [
            (w["at"], w["new"]["partition"])
            for w in self.writes
            if w["table"] == "launches" and w["op"] == "insert"
        ]
        for fault in self.faults:
            if not fault["partitions"]:
                continue
            at = datetime.fromisoformat(fault["at"])
            found: dict[int, float | None] = {}
            for partition in fault["partitions"]:
                after = [t for t, p in inserts if p == partition and t > fault["at"]]
                found[partition] = (
                    (datetime.fromisoformat(min(after)) - at).total_seconds() if after else None
                )
            self.found.recovery.append((f"{fault['name']} of {fault['victim']}", found))


def _ended(fault: Line) -> str:
    return str(fault.get("until", fault["at"]))


def _range(skip: Line) -> tuple[datetime, datetime]:
    first, last = (datetime.fromisoformat(skip[name]) for name in ("scheduled_at", "last_at"))
    return first, last


def _is_raise(write: Line) -> bool:
    old, new = write["old"], write["new"]
    return bool(
        write["table"] == "partitions" and new and (not old or new["epoch"] != old["epoch"])
    )


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def judge(lines: Iterable[Line]) -> Judgement:
    """What holds and what does not in a history.

    Raises:
        ValueError: it has not one header and one end.
    """
    return _Checker(lines).run()


def main(arguments: Sequence[str]) -> int:
    """Judge saved histories; 1 when a rule does not hold, 2 for what is no history."""
    if not arguments:
        return _wrong("usage: python -m tests.fault.checker FILE...")
    bad = 0
    for name in arguments:
        try:
            lines = [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]
            if not all(isinstance(line, dict) and "kind" in line for line in lines):
                raise ValueError("a line is no object with a kind")  # noqa: TRY301 - told below
            judgement = judge(lines)
        except (OSError, ValueError) as e:
            return _wrong(f"{name} is no history: {e}")
        print(f"{name}\n{report(judgement)}")  # noqa: T201 - a program
        bad += bool(judgement.breaches)
    return 1 if bad else 0


def _wrong(why: str) -> int:
    print(why, file=sys.stderr)  # noqa: T201 - a program
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
