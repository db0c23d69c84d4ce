"""What a seed chooses: the jobs, the processes, and what goes wrong when."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.simulation.eras import ANCHOR
from tests.simulation.plan_requests import add_redrives, add_request
from tests.simulation.processes import ETCD_CALLS, FENCE_CALLS, OWNER_CALLS, WORKER_CALLS

LENGTH = 26.0
"""Seconds in which things go wrong; after that all is repaired."""
OVERLAPS = ("allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other")
_LOCAL = ("publish", "report", "decide")
_HOT = (
    "tick",
    "mark_queued",
    "sweep",
    "reap",
    "raise_epoch",
    "claim",
    "finish",
    "publish",
    "backfill",
    "snapshot",
)


@dataclass
class Event:
    """Something that happens at `at`; `kind` is a method of `world.Happenings`."""

    at: float
    kind: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = " ".join(f"{k}={v}" for k, v in self.args.items())
        return f"{self.at:7.3f} {self.kind} {told}"


@dataclass
class History:
    """A simulation that is to be run. What the seed draws besides is the order of turns."""

    seed: int
    schedulers: int
    workers: int
    noise: float
    jobs: list[dict[str, Any]]
    events: list[Event]
    weights: dict[str, float] = field(default_factory=dict)
    bug: str = ""
    """The mistake with which it was run, where it is kept; empty for none."""

    def weight(self, scheduler: str) -> float:
        """The share of a scheduler against the others."""
        return self.weights.get(scheduler, 1.0)

    def dump(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> History:
        """A history that was kept.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is none.
        """
        doc = json.loads(path.read_text("utf-8"))
        wanted = {f.name for f in fields(cls) if f.default_factory is MISSING is f.default}
        missing = wanted - doc.keys() if isinstance(doc, dict) else wanted
        if missing:
            raise ValueError(f"no history that was kept: {', '.join(sorted(missing))} missing")
        try:
            events = [Event(**e) for e in doc.pop("events")]
            return cls(events=events, **doc)
        except TypeError as e:
            raise ValueError(f"no history that was kept: {e}") from e


def history(seed: int) -> History:
    """The history of a seed."""
    rng = random.Random(f"{seed}/plan")
    schedulers, workers = rng.choice((2, 2, 2, 3)), rng.choice((1, 2, 2))
    jobs = [_job(rng, n) for n in range(rng.randint(2, 5))]
    if rng.random() < 0.4:
        jobs.append(_completion(rng, len(jobs)))
    made = History(seed, schedulers, workers, rng.choice((0.0, 0.0, 0.02, 0.1)), jobs, [])
    if rng.random() < 0.2:
        made.weights["s0"] = rng.choice((0.3, 3.0))
    chooser = _Chooser(rng, made)
    for _ in range(rng.choice((1, 2, 2, 3, 4, 5, 6))):
        chooser.fault()
    for _ in range(rng.choice((0, 1, 2, 4))):
        add_request(rng, made.jobs, chooser.add)
    # Dice of their own: the other events are what they are without redrives.
    add_redrives(random.Random(f"{seed}/redrives"), made.jobs, chooser.add)
    made.events.sort(key=lambda e: e.at)
    return made


def _job(rng: random.Random, n: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": f"j{n}",
        "schedule": rng.choice(
            (
                {"every": f"{rng.choice((3, 4, 5, 7, 11))}s", "anchor": ANCHOR},
                {"every": f"{rng.choice((5, 9))}s", "anchor": ANCHOR},
                {"cron": "* * * * *"},
            )
        ),
        "overlap": rng.choice(OVERLAPS),
        "misfire": rng.choice(
            (
                {"policy": "fire_once", "grace": "2s"},
                {"policy": "skip", "grace": "3s"},
                {"policy": "fire_all", "grace": "1s", "max_count": 5, "per_minute": 600},
                {"policy": "fire_once", "grace": "1m"},
            )
        ),
        **_common(rng),
    }
    if rng.random() < 0.2:
        document["calendars"] = {"exclude": ["rest"], "include": [], "on_excluded": "skip"}
    if rng.random() < 0.2 and "every" in document["schedule"]:
        document["backfill"] = {"back": rng.choice((20, 40)), "max_open": rng.choice((1, 3))}
    if rng.random() < 0.1:
        document["start_deadline"] = "4s"
    return document


def _completion(rng: random.Random, n: int) -> dict[str, Any]:
    every = f"{rng.choice((3, 6))}s"
    return {
        "name": f"j{n}",
        "schedule": {"every": every, "anchor": ANCHOR, "measured_from": "completion"},
        "overlap": "skip",
        **_common(rng),
    }


def _common(rng: random.Random) -> dict[str, Any]:
    return {
        "if_uncertain": rng.choice(("rerun", "rerun", "skip")),
        "priority": rng.choice(("high", "normal", "low")),
        "timeout": "12s",
        "visibility_timeout": rng.choice(("5s", "6s", "9s")),
        "retry": {"max_attempts": rng.choice((2, 3)), "initial": "1s", "max": "3s"},
        "target": {"noop": {}},
    }


class _Chooser:
    """Draws events."""

    def __init__(self, rng: random.Random, made: History) -> None:
        self.rng = rng
        self.events = made.events
        self.jobs = [j["name"] for j in made.jobs]
        self.schedulers = [f"s{n}" for n in range(made.schedulers)]
        self.workers = [f"w{n}" for n in range(made.workers)]
        self.hung = False

    def add(self, at: float, kind: str, **args: Any) -> None:
        self.events.append(Event(round(at, 3), kind, args))

    def fault(self) -> None:
        """Something goes wrong."""
        rng = self.rng
        at = rng.uniform(3.0, LENGTH - 4.0)
        kinds: list[tuple[int, Callable[[float], None]]] = [
            (10, self._call), (3, self._slow_renewal), (4, self._message), (3, self._whole),
            (2, self._down), (2, self._cut), (3, self._restore), (2, self._clock),
            (1, self._lease), (2, self._group), (1, self._hang), (1, self._locked),
            (2, self._drain), (3, self._lost_worker), (2, self._paused_owner), (2, self._late_mark),
            (1, self._late_heartbeat), (1, self._stuck_heartbeat),
        ]  # fmt: skip
        weights = [w for w, _ in kinds]
        rng.choices([k for _, k in kinds], weights)[0](at)

    def _call(self, at: float) -> None:
        rng = self.rng
        owner = rng.random() < 0.6
        process = rng.choice(self.schedulers if owner else self.workers)
        every = (*OWNER_CALLS, *ETCD_CALLS, *FENCE_CALLS, *_LOCAL) if owner else (
            *WORKER_CALLS, "consume", "commit"
        )  # fmt: skip
        hot = [c for c in _HOT if c in every]
        what = rng.choice(("crash", "crash", "freeze", "freeze", "stall", "fail"))
        seconds = rng.choice((0.5, 3.0, 7.0, 9.0, 14.0)) if what in ("freeze", "stall") else 0.0
        self.add(
            at, "call", process=process, call=rng.choice(hot if rng.random() < 0.6 else every),
            when=rng.choice(("before", "after", "after")), what=what, seconds=seconds,
            nth=rng.choice((1, 1, 2, 3, 5)),
        )  # fmt: skip

    def _slow_renewal(self, at: float) -> None:
        """The answer to a renewal is long on its way, and the next ones do not arrive."""
        rng = self.rng
        process = rng.choice(self.schedulers)
        late = rng.choice((1.5, 3.0, 4.5))
        self.add(at, "call", process=process, call="renew", when="after", what="stall",
                 seconds=late, nth=1)  # fmt: skip
        self.add(at + 2.2, "cut", process=process, server="etcd", seconds=late + 12.0)

    def _paused_owner(self, at: float) -> None:
        """An owner stands still for longer than its lease, in the middle of something."""
        rng = self.rng
        self.add(
            at, "call", process=rng.choice(self.schedulers),
            call=rng.choice(("tick", "mark_queued", "reap", "sweep", "publish", "report", "backlog",
                             "backfill", "decide", "snapshot", "raise_epoch")),
            when="before", what="freeze", seconds=rng.choice((8.0, 11.0, 15.0)), nth=1,
        )  # fmt: skip

    def _lost_worker(self, at: float) -> None:
        """A worker is gone or stands still while it runs something."""
        rng = self.rng
        process = rng.choice(self.workers)
        what = rng.choice(("crash", "late", "freeze", "stop"))
        if what == "crash":
            self.add(at, "call", process=process, call=rng.choice(("claim", "extend", "finish")),
                     when="after", what="crash", seconds=0.0, nth=1)  # fmt: skip
        elif what == "late":
            self.add(at, "call", process=process, call="claim", when="after", what="freeze",
                     seconds=rng.choice((6.0, 9.0, 13.0)), nth=1)  # fmt: skip
        elif what == "stop":
            self.add(at, "stop", process=process)
        else:
            self.add(at, "freeze", process=process, seconds=rng.choice((6.0, 9.0, 13.0)))

    def _late_mark(self, at: float) -> None:
        """An owner stands still between a publication and its mark; nobody else gets on."""
        rng = self.rng
        process, seconds = rng.choice(self.schedulers), rng.choice((9.0, 12.0))
        self.add(at, "call", process=process, call="mark_queued", when="before", what="freeze",
                 seconds=seconds, nth=1)  # fmt: skip
        for other in self.schedulers:
            if other != process:
                self.add(at, "cut", process=other, server="kafka", seconds=seconds + 5.0)
        for worker in self.workers:
            self.add(at, "freeze", process=worker, seconds=seconds + 3.0)

    def _late_heartbeat(self, at: float) -> None:
        """A worker extends its claims after their end, while the reaper decides on them."""
        rng = self.rng
        self.add(at - 3.0, "slow", seconds=3.0)
        self.add(at, "freeze", process=rng.choice(self.workers), seconds=rng.choice((6.5, 7.5, 9)))
        for one in self.schedulers:
            self.add(at + 4.0, "call", process=one, call="decide", when="before", what="stall",
                     seconds=1.9, nth=1)  # fmt: skip

    def _stuck_heartbeat(self, at: float) -> None:
        """A worker waits for the answer to an extension until its claims have ended."""
        self.add(at - 3.0, "slow", seconds=4.0)
        self.add(at, "call", process=self.rng.choice(self.workers), call="extend", when="before",
                 what="stall", seconds=12.0, nth=1)  # fmt: skip

    def _message(self, at: float) -> None:
        rng = self.rng
        what = rng.choice(("lose", "double", "late", "unsure", "late"))
        for _ in range(rng.choice((1, 1, 3))):
            self.add(at + rng.uniform(0, 2), "message", what=what,
                     seconds=rng.choice((0.5, 4.0, 9.0, 18.0)))  # fmt: skip

    def _whole(self, at: float) -> None:
        rng = self.rng
        process = rng.choice((*self.schedulers, *self.workers))
        kind = rng.choice(("crash", "stop", "freeze"))
        if kind == "freeze":
            self.add(at, kind, process=process, seconds=rng.choice((2.0, 7.0, 12.0)))
        else:
            self.add(at, kind, process=process)

    def _down(self, at: float) -> None:
        server = self.rng.choice(("etcd", "db", "kafka", "produce"))
        self.add(at, "down", server=server, seconds=self.rng.choice((0.5, 4.0, 6.0, 12.0)))

    def _cut(self, at: float) -> None:
        rng = self.rng
        process = rng.choice((*self.schedulers, *self.workers))
        server = rng.choice(("etcd", "db", "kafka", "produce"))
        self.add(at, "cut", process=process, server=server, seconds=rng.choice((2.0, 8.0, 14.0)))

    def _restore(self, at: float) -> None:
        """A server is put back to an older state, or both are; etcd may be an empty one."""
        rng = self.rng
        server = rng.choice(("db", "db", "etcd", "etcd", "both"))
        lost = rng.choice((0.2, 1.0, 4.0, 10.0))
        if server != "etcd":
            self.add(at, "restore", server="db", lost=lost)
        if server != "db":
            lost = rng.choice((lost, 0.2, 4.0, 100.0))
            mended = rng.choice((0.0, 5.0))
            self.add(at + rng.choice((0.0, 1.5)), "restore", server="etcd", lost=lost,
                     mended=mended)  # fmt: skip

    def _clock(self, at: float) -> None:
        rng = self.rng
        who = rng.choice(("db", *self.schedulers, *self.workers))
        self.add(at, "clock", who=who, seconds=rng.choice((-40.0, -3.0, 3.0, 8.0, 100.0)))

    def _lease(self, at: float) -> None:
        self.add(at, "revoke", process=self.rng.choice(self.schedulers))

    def _drain(self, at: float) -> None:
        rng = self.rng
        self.add(at, "drain", process=rng.choice(self.schedulers),
                 seconds=rng.choice((3.0, 9.0, 500.0)))  # fmt: skip

    def _group(self, at: float) -> None:
        rng = self.rng
        kind = rng.choice(("throw_out", "throw_out", "empty", "recreate", "anew", "truncate"))
        if kind == "truncate":
            self.add(at, kind, topic=rng.randrange(4), count=rng.choice((1, 1, 3)))
        elif kind == "throw_out":
            self.add(at, kind, process=rng.choice(self.workers))
        else:
            self.add(at, kind, topic=rng.randrange(4))

    def _hang(self, at: float) -> None:
        if not self.hung:
            self.hung = True
            self.add(at, "hang", process=self.rng.choice(self.schedulers))

    def _locked(self, at: float) -> None:
        self.add(at, "locked", job=self.rng.choice(self.jobs), seconds=self.rng.choice((1.0, 5.0)))
