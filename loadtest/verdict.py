"""What must hold after a load test, from the database, Locust's notes and the receiver's journal.

lost         a slot that is due in the run has no launch
doubled      a slot has two launches
made up      a job has a launch that is no slot of it
skipped      a slot was not launched, and a skip record says why
ended        a launch has not ended, or is dead before its last allowed failure
once         an attempt reached the receiver twice, or was none of the launch's
effects      a success was not answered with 200 there, or a launch was answered so twice
promised     what the API has answered (made, changed, triggered) is not there
paused       a job was launched by its schedule while it was paused

No process is killed in a load test, so there is no excuse for any of these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from loadtest.receiver import Start

SHOWN = 5
"""Breaches of a rule that are shown one by one."""
MINUTE = 60
_WHOLE = 1000
"""Figures from here on are shown without decimals."""


class Launch(NamedTuple):
    """A launch as the database has it. Instants in Unix seconds, None where there is none."""

    id: str
    job: str
    origin: str
    state: str
    attempt: int
    failures: int
    max_attempts: int
    slot: int
    due: float
    created: float
    started: float | None
    finished: float | None


@dataclass
class Facts:
    """What was found after a run.

    Attributes:
        expected: by job, the slots that are due in the run; of made jobs those of `made`.
        made: by job, the instant at which a job of every minute was made; launched up to `last`.
        last: the last second of the run.
        launches: all there are.
        skipped: how many slots were skipped, by job.
        versions: how many definitions each job has.
        said: what Locust's users wrote down.
        starts: the receiver's journal.
        webhooks: the jobs that call the receiver.
    """

    expected: dict[str, set[int]]
    made: Mapping[str, float]
    last: int
    launches: Sequence[Launch]
    skipped: Mapping[str, int]
    versions: Mapping[str, int]
    said: Sequence[Mapping[str, Any]]
    starts: Sequence[Start]
    webhooks: frozenset[str]


@dataclass(frozen=True)
class Threshold:
    """A figure and its bound. `least`: the figure must not be below it, else not above it."""

    what: str
    value: float
    limit: float
    unit: str = ""
    least: bool = False

    @property
    def kept(self) -> bool:
        """Whether it holds; what is no number does not."""
        return self.value >= self.limit if self.least else self.value <= self.limit

    def __str__(self) -> str:
        bound = "at least" if self.least else "at most"
        unit = f" {self.unit}" if self.unit else ""
        value = f"{self.value:,.0f}" if self.value >= _WHOLE else f"{self.value:,.4g}"
        return f"{self.what}: {value}{unit} ({bound} {self.limit:,g}{unit})"


@dataclass
class Verdict:
    """What was found: breaches by rule, in words."""

    breaches: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def check(self, rule: str, bad: Iterable[str]) -> None:
        """Each of these is a breach of a rule."""
        found = list(bad)
        self.counts[rule] = self.counts.get(rule, 0) + len(found)
        self.breaches += [f"{rule}: {what}" for what in found[:SHOWN]]
        if len(found) > SHOWN:
            self.breaches.append(f"{rule}: and {len(found) - SHOWN:,} more")


def judge(facts: Facts) -> Verdict:
    """Whether nothing was lost, doubled or made up, and every promise was kept."""
    verdict = Verdict()
    _slots(facts, verdict)
    _ended(facts, verdict)
    _journal(facts, verdict)
    _promises(facts, verdict)
    return verdict


def minutes(made: float, last: int) -> set[int]:
    """The slots of a job of every whole minute that was made then, up to and with the last."""
    first = int(made // MINUTE + 1) * MINUTE
    return set(range(first, last + 1, MINUTE))


def _slots(facts: Facts, verdict: Verdict) -> None:
    paused = {said["job"] for said in facts.said if said["what"] == "paused"}
    created = {said["job"] for said in facts.said if said["what"] == "created"}
    expected = dict(facts.expected)
    for job in created - paused:  # a paused one's slots are decided when it is resumed
        if job in facts.made:
            expected[job] = minutes(facts.made[job], facts.last)
    slots: dict[str, Counter[int]] = defaultdict(Counter)
    for one in facts.launches:
        if one.origin == "schedule":
            slots[one.job][one.slot] += 1
    lost, made_up = [], []
    for job, due in expected.items():
        there = slots[job].keys()
        lost += [f"slot {at} of job {job}" for at in sorted(due - there)]
        made_up += [f"slot {at} of job {job}" for at in sorted(there - due) if at <= facts.last]
    verdict.check("lost", lost)
    verdict.check("made up", made_up)
    verdict.check(
        "doubled",
        [
            f"slot {at} of job {job} has {n} launches"
            for job, those in slots.items()
            for at, n in those.items()
            if n > 1
        ],
    )
    verdict.check(
        "skipped", [f"{n} slots of job {j}" for j, n in facts.skipped.items() if j in expected]
    )
    verdict.counts["slots"] = sum(map(len, expected.values()))


def _ended(facts: Facts, verdict: Verdict) -> None:
    verdict.check(
        "ended",
        [
            f"launch {one.id} is {one.state} after {one.failures} failures"
            for one in facts.launches
            if one.state != "succeeded"
            and not (one.state == "dead" and one.failures == one.max_attempts)
        ],
    )


def _journal(facts: Facts, verdict: Verdict) -> None:
    by_launch: dict[str, list[Start]] = defaultdict(list)
    for start in facts.starts:
        by_launch[start.launch].append(start)
    calls = {one.id: one for one in facts.launches if one.job in facts.webhooks}
    once: list[str] = []
    effects: list[str] = []
    for launch, starts in by_launch.items():
        one = calls.get(launch)
        if one is None:
            once.append(f"launch {launch} is not there, and was started")
            continue
        numbers = Counter(start.attempt for start in starts)
        once += [f"attempt {a} of launch {launch}, {n} times" for a, n in numbers.items() if n > 1]
        once += [
            f"attempt {a} of launch {launch}, which has {one.attempt}"
            for a in numbers
            if not 1 <= a <= one.attempt
        ]
        if (good := sum(not start.failed for start in starts)) > 1:
            effects.append(f"launch {launch} was answered with 200 {good} times")
    for launch, one in calls.items():
        if one.state == "succeeded" and not any(
            start.attempt == one.attempt and not start.failed for start in by_launch[launch]
        ):
            effects.append(f"launch {launch} succeeded without an answer of 200")
    verdict.check("once", once)
    verdict.check("effects", effects)
    verdict.counts["calls"] = len(facts.starts)


def _promises(facts: Facts, verdict: Verdict) -> None:
    launches = {one.id for one in facts.launches}
    changes: Counter[str] = Counter()
    bad, paused = [], defaultdict(list)
    for said in facts.said:
        what = said["what"]
        if what == "triggered" and said["launch"] not in launches:
            bad.append(f"launch {said['launch']} was triggered and is not there")
        elif what == "created" and said["job"] not in facts.versions:
            bad.append(f"job {said['job']} was made and is not there")
        elif what == "changed":
            changes[said["job"]] += 1
        elif what == "herd":
            bad += [f"job {j} was made, not there" for j in said["jobs"] if j not in facts.versions]
        elif what == "paused":
            since, until = (datetime.fromisoformat(said[k]).timestamp() for k in ("since", "until"))
            paused[said["job"]].append((since, until))
    bad += [
        f"job {job} was changed {n} times and has {facts.versions.get(job, 0)} versions"
        for job, n in changes.items()
        if facts.versions.get(job, 0) < n + 1
    ]
    verdict.check("promised", bad)
    verdict.check(
        "paused",
        [
            f"launch {one.id} of job {one.job}"
            for one in facts.launches
            if one.origin == "schedule"
            and any(since < one.created < until for since, until in paused.get(one.job, ()))
        ],
    )
    verdict.counts["promises"] = sum(
        len(said["jobs"]) if "jobs" in said else 1 for said in facts.said
    )
