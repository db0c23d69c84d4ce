"""A round of a fault test: traffic, services that fail at failpoints, and what must be right after.

Each blow strikes one service once: it is started anew with its failpoint, comes there under
traffic, and dies (`kill`, started again), stops for longer than its lease or its claims (`stop`,
woken) or waits there (`sleep`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.fault.history import Effects, History, install
from tests.fault.judgement import Judgement
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.until import pause, until

TTL = 5.0
"""The lease of the schedulers here."""
VISIBILITY = 5.0
"""The claims of the workers here."""
ENVIRONMENT = {"TICKRAIL_WORKER_TARGETS": "webhook,kafka", "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8"}
REACHED_WITHIN = 30.0
ENDED_WITHIN = 90.0
JOB: Mapping[str, Any] = {
    "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
    "overlap": "allow",
    "visibility_timeout": f"{VISIBILITY:g}s",
    "misfire": {"policy": "fire_all", "grace": "1m", "max_count": 10000, "per_minute": 100000},
    "retry": {"max_attempts": 10, "initial": "1s"},
}

SCHEDULER_POINTS = (
    "etcd.grant.after", "etcd.claim.before", "etcd.claim.after", "etcd.renew.before",
    "etcd.renew.after", "fence.raise_epoch.before", "fence.raise_epoch.after",
    "owner.tick.before", "owner.tick.locked", "owner.tick.written", "owner.tick.after",
    "relay.publish.before", "relay.publish.after", "relay.report.after",
    "owner.mark_queued.before", "owner.mark_queued.written", "owner.mark_queued.after",
    "owner.sweep.before", "owner.sweep.after", "owner.reap.before", "owner.reap.after",
)  # fmt: skip
WORKER_POINTS = (
    "worker.claim.before", "worker.claim.written", "worker.claim.after",
    "executor.start.before", "executor.start.after", "executor.effect.after",
    "worker.finish.before", "worker.finish.written", "worker.finish.after",
    "worker.extend.before", "worker.extend.after", "consumer.commit.before",
    "consumer.commit.after",
)  # fmt: skip


@dataclass(frozen=True)
class Blow:
    """What befalls one service."""

    service: str
    point: str
    action: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.service}: {self.point}={self.action}@{self.nth}"


@dataclass
class Struck:
    """A blow that happened."""

    blow: Blow
    at: datetime
    owned: Sequence[int]
    until: datetime | None = None


@dataclass
class Played:
    """A round that is over.

    Attributes:
        judgement: the checker's.
        struck: the blows, by service.
        lines: the history.
        missed: blows whose service never came to their point.
    """

    judgement: Judgement
    struck: dict[str, Struck]
    lines: list[dict[str, Any]]
    missed: list[Blow] = field(default_factory=list)

    def held(self, worker: str) -> list[dict[str, Any]]:
        """How the launches ended whose claims this worker held when it was struck."""
        return [row for row, _ in self._held(worker)]

    def in_flight(self, worker: str) -> list[dict[str, Any]]:
        """Those of them whose effect had happened."""
        at = self.struck[worker].at.isoformat()
        done = {
            (e["key"], e["token"]) for e in self.lines if e["kind"] == "effect" and e["begin"] < at
        }
        return [row for row, claim in self._held(worker) if (row["id"], claim) in done]

    def _held(self, worker: str) -> list[tuple[dict[str, Any], int]]:
        at = self.struck[worker].at.isoformat()
        rows: dict[str, dict[str, Any]] = {}
        held: dict[str, int] = {}
        for line in self.lines:
            if line["kind"] != "write" or line["table"] != "launches" or line["new"] is None:
                continue
            new = line["new"]
            rows[new["id"]] = new
            if line["at"] < at:
                held.pop(new["id"], None)
                if new["state"] == "running" and new["worker"] == worker:
                    held[new["id"]] = new["claim"]
        return [(rows[key], claim) for key, claim in held.items()]


@contextmanager
def bed() -> Iterator[tuple[Installation, Effects]]:
    """Two schedulers and two workers that own and read everything."""
    lease = {"TICKRAIL_LEASE_TTL": f"{TTL:g}", "TICKRAIL_RENEW_EVERY": "1.5"}
    with (
        Effects(delay=0.1) as effects,
        installation(prepare=install, environment={**ENVIRONMENT, **lease}) as found,
    ):
        until(lambda: found.query("select 1 from partitions where epoch = 0") == [], 60, 0.1)
        # One that still begins does not hear SIGTERM yet.
        until(lambda: all(s.ready() for s in found.services.values()), 60, 0.1)
        yield found, effects


def chosen(seed: int) -> list[Blow]:
    """The blows of a seed: a scheduler, a worker, or one of each."""
    rng = random.Random(seed)
    scheduler = _blow(rng, "scheduler", SCHEDULER_POINTS)
    worker = _blow(rng, "worker", WORKER_POINTS)
    return rng.choice([[scheduler], [worker], [scheduler, worker], [scheduler, worker]])


def _blow(rng: random.Random, kind: str, points: Sequence[str]) -> Blow:
    action = rng.choice(["kill", "kill", "stop", "stop", "sleep:7"])
    return Blow(
        f"{kind}-{rng.choice((1, 2))}", rng.choice(points), action, rng.choice((1, 1, 2, 5))
    )


def play(
    found: Installation, effects: Effects, blows: Sequence[Blow], folder: Path, name: str
) -> Played:
    """One round.

    Raises:
        AssertionError: a rule does not hold, or the installation did not recover.
    """
    history = History(found, effects)
    services = found.services
    _end(services[blow.service] for blow in blows)
    try:
        _traffic(history, effects)
        for blow in blows:
            services[blow.service].start(f"{blow.point}={blow.action}@{blow.nth}")
        struck = _strike(found, history, blows)
        pause(2.0)
        last = CLOCK.now().replace(microsecond=0)
        until(lambda: history.ended(last), ENDED_WITHIN, 0.1)
        assert all(service.alive for service in services.values())
    finally:
        found.pause_jobs()
        for service in services.values():
            if service.frozen:
                service.kill()
            if not service.alive:
                service.start()
    judgement = history.judge(last, folder, name)
    missed = [blow for blow in blows if blow.service not in struck]
    return Played(judgement, struck, history.lines(last), missed)


def _end(victims: Iterable[Service]) -> None:
    """End them in good order, all at once: each is started anew with its failpoint."""
    processes = {one.name: one.process for one in victims if one.process is not None}
    for process in processes.values():
        process.terminate()
    codes = {name: process.wait(60) for name, process in processes.items()}
    assert not any(codes.values()), f"exit codes after SIGTERM: {codes}"


def _strike(found: Installation, history: History, blows: Sequence[Blow]) -> dict[str, Struck]:
    """Wait for the blows, see that they struck, undo and note them."""
    struck = _wait_for(found, history, blows)
    for name in {blow.service for blow in blows} - struck.keys():
        # It might come to its point later, when nobody looks any more.
        found.services[name].kill()
        history.fault("kill", name, partitions=history.owned_by(name))
        found.services[name].start()
    for one in struck.values():
        _prove(one, found.services[one.blow.service])
    if any(one.blow.action != "kill" for one in struck.values()):
        _wait_until_replaced(history, struck)
    else:
        pause(1.0)
    for name, one in struck.items():
        _restore(one, found.services[name])
        history.fault(
            one.blow.action,
            name,
            partitions=one.owned,
            at=one.at,
            until=one.until,
            point=one.blow.point,
        )
    return struck


def _traffic(history: History, effects: Effects) -> None:
    history.add_jobs(10, {**JOB, "target": effects.target()})
    history.add_jobs(10, {**JOB, "target": effects.target(), "if_uncertain": "skip"})
    # Long enough to be extended.
    history.add_jobs(2, {**JOB, "target": effects.target(delay=2.5)})


def _wait_for(found: Installation, history: History, blows: Sequence[Blow]) -> dict[str, Struck]:
    """The blows that struck, or all of them that did so in time."""
    struck: dict[str, Struck] = {}
    deadline = CLOCK.monotonic() + REACHED_WITHIN
    while len(struck) < len(blows) and CLOCK.monotonic() < deadline:
        for blow in blows:
            at = found.services[blow.service].reached(blow.point)
            if at is not None and blow.service not in struck:
                struck[blow.service] = Struck(blow, at, history.owned_by(blow.service))
        pause(0.02)
    return struck


def _prove(one: Struck, service: Service) -> None:
    """The fault has happened, seen from outside."""
    if one.blow.action == "kill":
        until(lambda: service.exit_code == -9, 10)
    elif one.blow.action == "stop":
        until(lambda: service.frozen, 10)


def _wait_until_replaced(history: History, struck: Mapping[str, Struck]) -> None:
    """Until the leases and claims of what is stopped have ended and others have taken over."""
    last = max(one.at for one in struck.values())
    until(lambda: (CLOCK.now() - last).total_seconds() > max(TTL, VISIBILITY) + 1.5, 30, 0.1)
    for name, one in struck.items():
        if one.blow.action == "stop":
            until(lambda n=name, o=one: not set(history.owned_by(n)) & set(o.owned), 30, 0.1)


def _restore(one: Struck, service: Service) -> None:
    one.until = CLOCK.now()
    if one.blow.action == "kill":
        service.start()
    else:
        service.thaw()
        until(lambda: service.said("failpoint_passed") or one.blow.action != "stop", 10)
