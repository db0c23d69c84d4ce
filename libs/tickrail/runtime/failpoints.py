"""Failpoints: named places in a running process where a test makes it die, stop or wait.

Off by default. `TICKRAIL_FAILPOINTS="owner.tick.after=stop@3"` stops the process (SIGSTOP) when it
comes to this place for the third time. The places are round the calls of ports, so that what is
tested is the code as it always runs: where nothing is asked for, the ports are not wrapped at all.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, cast

import structlog

from tickrail.core.errors import Problem, SettingsError

log = structlog.get_logger("tickrail.failpoints")

VARIABLE = "TICKRAIL_FAILPOINTS"
ACTIONS = {
    "kill": "the process ends at once, as by `kill -9`",
    "stop": "the process stops until it gets SIGCONT",
    "sleep:SECONDS": "this thread waits, the others go on",
}

POINTS: Mapping[str, str] = {
    # the scheduler: taking partitions
    "etcd.grant.after": "a lease is granted, no member key is made",
    "etcd.claim.before": "a free partition was chosen, its owner key is not made",
    "etcd.claim.after": "the owner key is made, the fence is not raised",
    "etcd.renew.before": "the lease is about to be renewed",
    "etcd.renew.after": "the lease is renewed, this is not yet known to the trust window",
    "etcd.release.before": "a partition is given up, its owner key is still there",
    "etcd.release.after": "the owner key is deleted",
    "fence.raise_epoch.before": "the owner key is made, the fence is about to be raised",
    "fence.raise_epoch.after": "the fence is raised, nothing is done for the partition yet",
    # the scheduler: the tick
    "owner.tick.before": "jobs may be due, nothing is locked",
    "owner.tick.locked": "in the transaction: due jobs and fence rows are locked, nothing written",
    "owner.tick.written": "in the transaction: launches are written, not committed",
    "owner.tick.after": "launches are committed, the relay does not know of them",
    "owner.backfill.before": "a backfill may go on, nothing is locked",
    "owner.backfill.after": "launches of a backfill are committed, the relay does not know of them",
    # the scheduler: the relay
    "relay.publish.before": "a launch is due, its message is not handed over",
    "relay.publish.after": "the message is handed to the client, not known to have arrived",
    "relay.report.after": "the message is known to be in the topic, the launch is not marked",
    "owner.mark_queued.before": "as relay.report.after, for the whole batch",
    "owner.mark_queued.written": "in the transaction: launches are marked, not committed",
    "owner.mark_queued.after": "launches are marked, the relay does not know that",
    # the scheduler: housekeeping
    "owner.sweep.before": "lost messages, deadlines and held launches are about to be looked for",
    "owner.sweep.after": "they are dealt with, the relay does not look yet",
    "owner.reap.before": "expired claims are about to be looked for",
    "owner.reap.locked": "in the transaction: an expired claim is found, its fence row is locked",
    "owner.reap.after": "expired claims are ended",
    "owner.settle.before": "dead letters are in the topic, that is not noted",
    "letters.publish.after": "a dead letter is handed to the client (worker: likewise)",
    # the worker
    "worker.claim.before": "messages are there, nothing is claimed",
    "worker.claim.written": "in the transaction: launches are claimed, not committed",
    "worker.claim.after": "launches are claimed, none is started",
    "executor.start.before": "a claimed launch is about to be started: its claim was looked at",
    "executor.start.after": "the executor has the run",
    "executor.effect.after": "the run has ended, its end is not queued for the database",
    "worker.finish.before": "ends are about to be written",
    "worker.finish.written": "in the transaction: ends are written, not committed",
    "worker.finish.after": "ends are written, no offset is done for them",
    "worker.extend.before": "claims are about to be extended",
    "worker.extend.after": "claims are extended, the worker does not know that",
    "consumer.commit.before": "offsets are done, not committed",
    "consumer.commit.after": "offsets are handed to the client for the commit",
    "worker.settle.before": "a dead letter is in the topic, that is not noted",
}
"""Each point, and where the process is when it comes there."""

_FORM = re.compile(
    r"(?P<point>[^=@]+)=(?P<action>kill|stop|sleep:(?P<seconds>\d+(\.\d+)?))(@(?P<nth>[1-9]\d*))?"
)
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Failpoint:
    """What happens at a point, the `nth` time that the process comes there."""

    point: str
    action: str
    nth: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Inside:
    """A point at which a port calls back: its argument's number, and the method called on it."""

    point: str
    argument: int
    method: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """Further points of a port than those before and after its calls.

    Attributes:
        inside: by method, where it calls back.
        result: by method, a point after a call that brought something.
    """

    inside: Mapping[str, Inside] = field(default_factory=dict)
    result: Mapping[str, str] = field(default_factory=dict)


class Failpoints:
    """The failpoints of this process."""

    def __init__(self, armed: Iterable[Failpoint] = ()) -> None:
        self._armed = {f.point: f for f in armed}
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def parse(cls, items: Iterable[str]) -> Failpoints:
        """Failpoints from their setting, `point=action[@nth]` each.

        Raises:
            SettingsError: names each that is not one, and lists what exists.
        """
        armed: list[Failpoint] = []
        problems: list[Problem] = []
        for item in items:
            found = _FORM.fullmatch(item)
            if found is None:
                message = f"{item!r} is not of the form POINT=ACTION[@NTH]"
                problems.append(Problem(VARIABLE, message, f"actions: {', '.join(ACTIONS)}"))
            elif found["point"] not in POINTS:
                message = f"there is no failpoint {found['point']!r}"
                problems.append(Problem(VARIABLE, message, f"points: {', '.join(POINTS)}"))
            elif any(f.point == found["point"] for f in armed):
                message = f"{found['point']} is given twice"
                problems.append(Problem(VARIABLE, message, "each point once"))
            else:
                action = found["action"].partition(":")[0]
                seconds = float(found["seconds"] or 0)
                armed.append(Failpoint(found["point"], action, int(found["nth"] or 1), seconds))
        if problems:
            raise SettingsError("The failpoints are not right.", tuple(problems))
        if armed:
            log.warning("failpoints_armed", points=[f"{f.point}={f.action}@{f.nth}" for f in armed])
        return cls(armed)

    def __bool__(self) -> bool:
        """Whether anything is armed."""
        return bool(self._armed)

    def armed(self, point: str) -> bool:
        """Whether something is to happen at this point."""
        return point in self._armed

    def hit(self, point: str) -> None:
        """The process is at this point. Acts when it is time, once; the log says so before."""
        failpoint = self._armed.get(point)
        if failpoint is None:
            return
        with self._lock:
            self._hits[point] += 1
            if self._hits[point] != failpoint.nth:
                return
        log.warning("failpoint", point=point, action=failpoint.action, nth=failpoint.nth)
        sys.stdout.flush()
        sys.stderr.flush()
        if failpoint.action == "sleep":
            threading.Event().wait(failpoint.seconds)
            return
        # To this thread: it goes no step further, which a signal to the process does not promise.
        sent = signal.SIGKILL if failpoint.action == "kill" else signal.SIGSTOP
        signal.pthread_kill(threading.get_ident(), sent)
        log.warning("failpoint_passed", point=point, pid=os.getpid())

    def before(self, point: str, function: Callable[P, R]) -> Callable[P, R]:
        """The function, with this point before it."""

        def call(*given: P.args, **named: P.kwargs) -> R:
            self.hit(point)
            return function(*given, **named)

        return call if self.armed(point) else function

    def watch(self, port: T, name: str, more: Watched | None = None) -> T:
        """The port, with the points `<name>.<method>.before` and `.after` round its calls.

        Args:
            port: anything; what has no armed point is called as ever.
            name: the first part of the points' names.
            more: its other points.
        """
        more = more or Watched()
        others = {*(i.point for i in more.inside.values()), *more.result.values()}
        if not any(p.startswith(f"{name}.") or p in others for p in self._armed):
            return port
        return cast("T", _Front(self, port, name, more))


class _Front:
    """Stands in front of a port."""

    def __init__(self, failpoints: Failpoints, port: object, name: str, more: Watched) -> None:
        self._failpoints = failpoints
        self._port = port
        self._name = name
        self._more = more

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - whatever the port has
        """The port's own, with the points round it."""
        found = getattr(self._port, method)
        if not callable(found):
            return found
        hit = self._failpoints.hit
        inside = self._more.inside.get(method)
        result = self._more.result.get(method, "")

        def call(*given: object, **named: object) -> object:
            hit(f"{self._name}.{method}.before")
            answer = found(*self._arguments(inside, given), **named)
            if result and answer:
                hit(result)
            hit(f"{self._name}.{method}.after")
            return answer

        return call

    def _arguments(self, inside: Inside | None, given: tuple[object, ...]) -> list[object]:
        arguments = list(given)
        if inside is not None:
            argument: Any = given[inside.argument]
            arguments[inside.argument] = (
                _Back(self._failpoints, argument, inside)
                if inside.method
                else self._failpoints.before(inside.point, argument)
            )
        return arguments


class _Back:
    """Stands in front of what a port calls back."""

    def __init__(self, failpoints: Failpoints, argument: object, inside: Inside) -> None:
        self._failpoints = failpoints
        self._argument = argument
        self._inside = inside

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - whatever the argument has
        """The argument's own, with the point before the one method."""
        found = getattr(self._argument, method)
        if method != self._inside.method:
            return found
        return self._failpoints.before(self._inside.point, found)
