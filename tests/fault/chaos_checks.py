"""What must be right after a chaos run, from the database, the topics and the receiver's journal.

ended        every slot has a launch, and every launch has ended
failures     no launch failed more often than its job allows; dead is only who failed so often
numbers      attempt numbers only rise, and so do the claims
once         each (launch, attempt) starts at most once
effects      a success has reached the receiver and was answered with 200 there
offsets      no offset was committed whose launch still waited for that message
lost         no message had to be published again because nobody took it
delays       a retry is due within its jitter band, never early; and is published when it is due
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.fault.chaos import JITTER, LONGEST, MAX_ATTEMPTS, Chaos, Start

from tickrail.core.durations import parse_duration

DELAY_ERROR = 1.0
"""Seconds, at the 99th percentile."""
_SLACK = 0.05
"""Seconds that a busy server may take between the due time and the record of the attempt's end."""


@dataclass
class Verdict:
    """What was found. `breaches` is empty where all holds."""

    breaches: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str, bad: Sequence[object]) -> None:
        """Each of these is a breach of a rule."""
        self.breaches += [f"{name}: {what}" for what in bad[:10]]
        if len(bad) > 10:
            self.breaches.append(f"{name}: and {len(bad) - 10} more")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def judge(chaos: Chaos) -> Verdict:
    """Ask the database, the topics and the journal."""
    found = Verdict()
    starts = list(chaos.journal.starts)
    rows = chaos.found.query(
        "select l.id::text, l.job_id::text, l.state, l.attempt, l.failures, l.claim, l.due_at,"
        " l.queued_at, l.started_at, v.definition -> 'retry' ->> 'initial', l.scheduled_at"
        " from launches l join job_versions v on v.job_id = l.job_id and v.version = l.job_version"
        " where l.job_id = any(%s::uuid[]) and l.scheduled_at <= %s",
        [str(job) for job in chaos.ids], chaos.last,
    )  # fmt: skip
    _ended(chaos, rows, found)
    _journal(rows, starts, found)
    _offsets(chaos, found)
    _delays(chaos, rows, found)
    found.figures |= {
        "launches": len(rows),
        "attempts that reached the receiver": len(starts),
        "of them failed": sum(s.failed for s in starts),
        "kills of workers": len(chaos.kills),
        "restarts of Kafka": len(chaos.outages),
        "attempts of workers that died": chaos.found.query(
            "select count(*) from attempts where outcome = 'worker_lost'"
        )[0][0],
    }
    return found


def _ended(chaos: Chaos, rows: Sequence[Any], found: Verdict) -> None:
    slots: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        slots[row[1]].append(row[10])
    bad: list[object] = []
    for job in map(str, chaos.ids):
        mine = sorted(slots[job])
        if not mine or mine[-1] != chaos.last:
            bad.append(f"job {job} has no launch of its last slot")
        gaps = [b for a, b in pairwise(mine) if (b - a).total_seconds() != 1]
        bad += [f"job {job}: a slot before {at} is missing" for at in gaps]
    found.check("ended", bad)
    found.check(
        "ended", [f"launch {r[0]} is {r[2]}" for r in rows if r[2] not in ("succeeded", "dead")]
    )
    found.check(
        "failures",
        [
            f"launch {r[0]} is {r[2]} after {r[4]} failures"
            for r in rows
            if r[4] > MAX_ATTEMPTS or (r[2] == "dead") != (r[4] == MAX_ATTEMPTS)
        ],
    )
    ended = chaos.found.query(
        "select launch_id::text, array_agg(attempt order by attempt),"
        " array_agg(claim order by attempt) from attempts group by 1"
    )
    now = {r[0]: r for r in rows}
    bad = []
    for launch, numbers, claims in ended:
        row = now.get(launch)
        if row is None:
            continue
        last = [row] if row[2] == "succeeded" else []
        all_numbers, all_claims = numbers + [r[3] for r in last], claims + [r[5] for r in last]
        if all_numbers != list(range(1, len(all_numbers) + 1)) or (
            sorted(set(all_claims)) != all_claims
        ):
            bad.append(f"launch {launch} has attempts {all_numbers} of claims {all_claims}")
    found.check("numbers", bad)
    lost = chaos.found.metric("scheduler", "messages_lost_total")
    found.check("lost", [f"{lost:g} messages were published again"] if lost else [])
    found.figures["states"] = {
        state: sum(r[2] == state for r in rows) for state in sorted({r[2] for r in rows})
    }


def _journal(rows: Sequence[Any], starts: Sequence[Start], found: Verdict) -> None:
    of: dict[str, list[Start]] = defaultdict(list)
    for start in sorted(starts, key=lambda s: s.at):
        of[start.launch].append(start)
    twice, falling = [], []
    for launch, those in of.items():
        numbers = [s.attempt for s in those]
        if len(set(numbers)) < len(numbers):
            twice.append(f"launch {launch} started as attempts {numbers}")
        if numbers != sorted(numbers) or any(a.token >= b.token for a, b in pairwise(those)):
            falling.append(f"launch {launch}: attempts {numbers} in this order")
    found.check("once", twice)
    found.check("numbers", falling)
    good = {s.launch for s in starts if not s.failed}
    found.check("effects", [r[0] for r in rows if r[2] == "succeeded" and r[0] not in good])


def _offsets(chaos: Chaos, found: Verdict) -> None:
    messages = chaos.messages()
    bad = [
        f"{topic}/{partition}: offset {offset} of launch {launch}, attempt {attempt}, was passed"
        f" before it was done ({snapshot.at})"
        for snapshot in chaos.snapshots
        for topic, partition, offset, launch, attempt in messages
        if offset < snapshot.committed.get((topic, partition), 0)
        and (launch, attempt) in snapshot.not_done
    ]
    found.check("offsets", bad)
    final = chaos.snapshots[-1].committed
    behind = sum(
        offset >= final.get((topic, partition), 0) for topic, partition, offset, *_ in messages
    )
    found.figures["messages"] = len(messages)
    found.figures["looks at offsets"] = len(chaos.snapshots)
    found.figures["messages not yet committed at the end"] = behind


def _delays(chaos: Chaos, rows: Sequence[Any], found: Verdict) -> None:
    """Of each launch's last retry: when it was due, published, started."""
    ends = {
        (launch, attempt): (at, outcome)
        for launch, attempt, at, outcome in chaos.found.query(
            "select launch_id::text, attempt, finished_at, outcome from attempts"
        )
    }
    early, published, started, undisturbed, outside = [], [], [], [], []
    for launch, _, _, attempt, failures, _, due_at, queued_at, started_at, initial, _ in rows:
        end = ends.get((launch, attempt - 1))
        if attempt == 1 or end is None or started_at is None or end[1] != "http_500":
            continue
        wait = (due_at - end[0]).total_seconds()
        # The row counts the failure of a launch that is dead by now, too.
        last = failures if (launch, attempt) not in ends else failures - 1
        middle = min(LONGEST, parse_duration(initial).total_seconds() * 2 ** (last - 1))
        low, high = middle * (1 - JITTER), middle * (1 + JITTER)
        if not low - _SLACK <= wait <= high + _SLACK:
            outside.append(f"launch {launch} waits {wait:.3f} s, not {low:.3f} to {high:.3f}")
        if started_at < due_at:
            early.append(f"launch {launch} started {due_at - started_at} early")
        started.append((started_at - due_at).total_seconds())
        if not chaos.away(due_at):
            undisturbed.append((started_at - due_at).total_seconds())
        if queued_at is not None and queued_at >= due_at and not chaos.away(due_at):
            published.append((queued_at - due_at).total_seconds())
    found.check("delays", early)
    found.check("delays", outside)
    late = percentile(published, 0.99)
    if late >= DELAY_ERROR:
        found.check("delays", [f"p99 of due -> published is {late:.3f} s"])
    found.figures |= {
        "retries measured": len(started),
        "retry due -> published, p50 / p99 / max": [
            round(percentile(published, q), 3) for q in (0.5, 0.99, 1)
        ],
        "retry due -> started, p50 / p90 / p99 / max": [
            round(percentile(started, q), 3) for q in (0.5, 0.9, 0.99, 1)
        ],
        "the same without those of the time of the restart": [
            round(percentile(undisturbed, q), 3) for q in (0.5, 0.9, 0.99, 1)
        ],
    }
