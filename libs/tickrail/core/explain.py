"""Why a launch stands where it stands: checks in the order in which it meets them.

Each check is a function of the facts. The first one that does not hold is what keeps the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tickrail.core.dead_letters import reason_of
from tickrail.core.explain_facts import Cap, Facts
from tickrail.core.job_filter import JobState
from tickrail.core.limits import RATE
from tickrail.core.policies import PRIORITIES
from tickrail.core.states import OPEN, State

MANY = 10_000
"""Up to so many are counted before a launch."""
_TO_START = frozenset({State.DUE, State.QUEUED})


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        ok: whether it lets the launch go on; None: not known, or not its turn yet.
        detail: in words.
        until: when that changes by itself, where that is known.
    """

    ok: bool | None
    detail: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launch ended.

    Attributes:
        state: in which state.
        reason: the class: that of dead letters (`core.dead_letters`), `ok`, `deadline`,
            `cancelled`, `terminated`.
        outcome: of the last attempt; None: there was none.
        attempts: how many there were.
        detail: in words.
        at: when.
    """

    state: State
    reason: str
    outcome: str | None
    attempts: int
    detail: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a launch stands: `holds` names the check that keeps it, None: nothing does."""

    holds: str | None
    checks: Mapping[str, Finding]
    ended: Ended | None = None


def explain(facts: Facts) -> Explanation:
    """Explain a launch; exactly one check holds one that is open and does not run."""
    if facts.launch.state not in OPEN:
        return Explanation(None, {}, _ended(facts))
    checks = {name: check(facts) for name, check in CHECKS.items()}
    holds = next((name for name, found in checks.items() if found.ok is False), None)
    return Explanation(holds, checks)


# --- the checks, in order -----------------------------------------------------------------------


def check_tenant(f: Facts) -> Finding:
    """A tenant that is not active has nothing published."""
    if f.tenant_active:
        return Finding(ok=True, detail="The tenant is active.")
    held = f.launch.state in (State.HELD, State.DUE)
    return Finding(not held, "The tenant is suspended: nothing of it is published.")


def check_job(f: Facts) -> Finding:
    """A pause and a deletion keep no launch that is there already."""
    if f.job_state is JobState.DELETED:
        return Finding(ok=True, detail="The job is deleted; what runs may end.")
    if f.job_state is JobState.PAUSED:
        why = str((f.job_paused or {}).get("reason") or "")
        why = f" ({why})" if why else ""
        return Finding(True, f"The job is paused{why}, which keeps new slots back, not launches.")
    return Finding(ok=True, detail=f"The job is {f.job_state}.")


def check_calendar(f: Facts) -> Finding:
    """Calendars were asked when the slot was planned."""
    if f.launch.origin.startswith("manual"):
        return Finding(ok=True, detail="Launched by hand: calendars are not asked.")
    if not f.calendars:
        return Finding(ok=True, detail="The job has no calendars.")
    names = ", ".join(f.calendars)
    return Finding(True, f"The slot passed the job's calendars when it was planned: {names}.")


def check_overlap(f: Facts) -> Finding:
    """Held until no other launch of the job is open."""
    if f.launch.state is not State.HELD:
        return Finding(ok=True, detail="No other launch of the job holds it back.")
    before = f" {f.held_before} of the job are held before it." if f.held_before else ""
    if not f.others:
        turn = "The owner of the partition releases the oldest held launch in its next turn."
        return Finding(False, f"No other launch of the job is open any more. {turn}{before}")
    other = f.others[0]
    where = f" on {other.worker}" if other.state is State.RUNNING else ""
    return Finding(
        False,
        f"The job's launch {other.id} is {other.state}{where}, and the overlap policy is"
        f" {f.overlap}.{before}",
    )


def check_deadline(f: Facts) -> Finding:
    """The first attempt must start in time."""
    at = f.start_before
    if at is None:
        return Finding(ok=True, detail="It has no start deadline.")
    waits = f.launch.state in _TO_START and f.launch.attempt == 1
    if waits and f.now >= at:
        turn = "the owner of the partition ends it in its next turn"
        return Finding(False, f"Its start deadline has passed: {turn}.", at)
    if f.launch.attempt > 1 or f.launch.state is State.RUNNING:
        return Finding(ok=True, detail="Its first attempt has started in time.")
    return Finding(True, "Its first attempt must start before its deadline.", at)


def check_retry(f: Facts) -> Finding:
    """A later attempt has a due time."""
    x = f.launch
    if x.attempt == 1:
        return Finding(ok=True, detail="It has not been tried yet.")
    last = str((x.result or {}).get("outcome") or "unknown")
    said = f"Attempt {x.attempt} ({x.failures} of {x.max_attempts} failures, the last {last})"
    if x.state is State.DUE and x.due_at > f.now and not f.waits:
        return Finding(False, f"{said} is due later.", x.due_at)
    return Finding(ok=True, detail=f"{said} may go on.")


def check_queue(f: Facts) -> Finding:
    """A queue may be paused, for everybody or for the tenant."""
    name = f.launch.queue
    starts = f.launch.state in _TO_START
    if not f.queue_there:
        return Finding(not starts, f"There is no queue {name}.")
    if f.queue_paused or any(c.shared and c.queue and c.limit.paused for c in f.caps):
        return Finding(not starts, f"The queue {name} is paused by an operator, for everybody.")
    own = next((c for c in f.caps if not c.shared and c.limit.paused), None)
    if own is not None:
        why = f" ({own.reason})" if own.reason else ""
        what = f"The tenant's part of the queue {name}" if own.queue else "The tenant's work"
        return Finding(not starts, f"{what} is paused{why}.")
    return Finding(ok=True, detail=f"The queue {name} is not paused.")


def check_tenant_cap(f: Facts) -> Finding:
    """How many launches of the tenant may run."""
    return _cap(f, "The tenant", [c for c in f.caps if not c.queue])


def check_queue_cap(f: Facts) -> Finding:
    """How many launches of the queue may run: everybody's, and the tenant's."""
    return _cap(f, f"The queue {f.launch.queue}", [c for c in f.caps if c.queue])


def check_rate(f: Facts) -> Finding:
    """How many may start in a time."""
    limited = [c for c in f.caps if c.limit.rate is not None]
    if not limited:
        return Finding(ok=True, detail="No rate is set.")
    starts = f.launch.state in _TO_START
    owed = any(w.reason == RATE for w in f.waits)
    for c in limited:
        rate = c.limit.rate
        if rate is None:
            continue
        said = f"{_whose(c)} may start {rate.count} in {rate.seconds:g} s"
        tokens = rate.filled(c.limit.tokens, c.limit.filled_at, f.now)
        if starts and owed and f.launch.due_at > f.now:
            return Finding(False, f"{said}, and others come first.", f.launch.due_at)
        if starts and tokens < 1:
            until = f.now + timedelta(seconds=(1 - tokens) / rate.per_second)
            return Finding(False, f"{said}, and has.", until)
    return Finding(ok=True, detail=f"{said}, and may now.")


def check_concurrency(f: Facts) -> Finding:
    """How many may run under its concurrency key."""
    if f.key is None:
        return Finding(ok=True, detail="It has no concurrency key.")
    most = f.key_limit or 1
    said = f"{f.holding} of {most} run under the key {f.key}"
    if f.launch.state not in _TO_START or f.holding < most:
        return Finding(ok=True, detail=f"{said}.")
    by = ", ".join(f"launch {x.id} on {x.worker}" for x in f.holders)
    return Finding(ok=False, detail=f"{said}: {by}.")


def check_due(f: Facts) -> Finding:
    """Its time must have come."""
    at = f.launch.due_at
    if f.launch.state is not State.DUE or at <= f.now:
        return Finding(ok=True, detail="Its time has come.")
    if f.waits:
        said = "It waits for a place under a limit; asked again at the latest by then."
        return Finding(False, said, at)
    return Finding(False, "It is not due yet.", at)


def check_partition(f: Facts) -> Finding:
    """A scheduler must own its partition."""
    if not f.owner_known:
        return Finding(None, f"Whether partition {f.partition} has an owner is not known now.")
    if f.owner is None:
        needs = f.launch.state is State.DUE
        return Finding(not needs, f"No scheduler owns partition {f.partition}.")
    return Finding(ok=True, detail=f"Partition {f.partition} has an owner.")


def check_relay(f: Facts) -> Finding:
    """The owner of its partition publishes it."""
    if f.launch.state is State.HELD:
        return Finding(None, "It is published when it is no longer held.")
    if f.launch.state is not State.DUE:
        times = "once" if f.publications == 1 else f"{f.publications} times"
        return Finding(ok=True, detail=f"It was published {times}.")
    lane = f"class {PRIORITIES[f.launch.priority]} of the queue {f.launch.queue}"
    before = f"{_many(f.ahead.relay)} of {lane} in its partition became due before it"
    return Finding(False, f"It waits to be published; {before}.")


def check_worker(f: Facts) -> Finding:
    """A worker must serve its queue and its kind of target."""
    name, s = f.launch.queue, f.serving
    starts = f.launch.state in _TO_START
    if s.target:
        are = "is 1 worker" if s.target == 1 else f"are {s.target} workers"
        return Finding(ok=True, detail=f"There {are} for {f.kind} targets of the queue {name}.")
    if s.queue:
        return Finding(not starts, f"No worker of the queue {name} runs {f.kind} targets.")
    if s.draining:
        return Finding(not starts, f"The workers of the queue {name} all drain.")
    return Finding(not starts, f"No worker serves the queue {name}.")


def check_kafka(f: Facts) -> Finding:
    """A worker must read its message."""
    if f.launch.state in (State.HELD, State.DUE):
        return Finding(None, "It is not in Kafka.")
    if f.launch.state is not State.QUEUED:
        return Finding(ok=True, detail="A worker has read its message.")
    many = _many(f.ahead.kafka)
    return Finding(
        ok=False, detail=f"It is in Kafka; {many} before it in its Kafka partition wait too."
    )


def check_claim(f: Facts) -> Finding:
    """A worker holds a running launch for a time."""
    if f.launch.state is not State.RUNNING:
        return Finding(None, "No worker has claimed this attempt.")
    until, worker = f.claim_expires_at, f.launch.worker
    if until is not None and until <= f.now:
        why = "the owner of the partition decides what becomes of it in its next turn"
        return Finding(False, f"The claim of {worker} has expired: {why}.", until)
    return Finding(True, f"{worker} runs it and extends its claim while it does.", until)


def check_cancel(f: Facts) -> Finding:
    """A running launch may have been asked to stop."""
    if not f.launch.cancel_requested:
        return Finding(ok=True, detail="Nobody asked it to stop.")
    if f.launch.state is not State.RUNNING:
        return Finding(ok=True, detail="An earlier attempt was asked to stop.")
    return Finding(ok=False, detail=f"It was asked to stop; {f.launch.worker} has not ended it.")


CHECKS: Mapping[str, Callable[[Facts], Finding]] = {
    "tenant": check_tenant,
    "job": check_job,
    "calendar": check_calendar,
    "overlap": check_overlap,
    "start_deadline": check_deadline,
    "retry": check_retry,
    "queue": check_queue,
    "tenant_cap": check_tenant_cap,
    "queue_cap": check_queue_cap,
    "rate": check_rate,
    "concurrency": check_concurrency,
    "due": check_due,
    "partition": check_partition,
    "relay": check_relay,
    "worker": check_worker,
    "kafka": check_kafka,
    "claim": check_claim,
    "cancel": check_cancel,
}
"""The checks by name, in the order in which a launch meets them."""


# --- words --------------------------------------------------------------------------------------


def _cap(f: Facts, who: str, caps: list[Cap]) -> Finding:
    limited = [(c, c.limit.max_running) for c in caps if c.limit.max_running is not None]
    if not limited:
        return Finding(ok=True, detail=f"{who} has no cap.")
    for c, most in limited:
        if most is not None and c.running >= most and f.launch.state in _TO_START:
            return Finding(ok=False, detail=f"{_whose(c)} runs {c.running} of at most {most}.")
    c, most = limited[0]
    return Finding(ok=True, detail=f"{_whose(c)} runs {c.running} of at most {most}.")


def _whose(c: Cap) -> str:
    if not c.queue:
        return "The tenant"
    return "The queue" if c.shared else "The tenant in this queue"


def _many(count: int) -> str:
    return f"{count}" if count < MANY else f"{MANY} or more"


def _ended(f: Facts) -> Ended:
    x = f.launch
    result = x.result or {}
    outcome = result.get("outcome")
    said = str(result.get("message") or "")
    attempts = x.attempt if x.started_at is not None else 0
    of = f"{x.failures} of {x.max_attempts} failures"
    match x.state:
        case State.SUCCEEDED:
            reason, detail = "ok", f"Attempt {x.attempt} succeeded."
        case State.EXPIRED:
            reason, detail = "deadline", "It did not start before its deadline."
        case State.CANCELLED:
            reason = "terminated" if outcome == "terminated" else "cancelled"
            detail = said if reason == "terminated" else "It was cancelled."
        case _:
            reason = reason_of(x.state, x.result).value
            detail = f"{reason.replace('_', ' ')} after {of}; the last: {outcome}"
            detail = f"{detail}: {said}" if said else f"{detail}."
            detail = detail[:1].upper() + detail[1:]
    return Ended(x.state, reason, outcome, attempts, detail, x.finished_at)
