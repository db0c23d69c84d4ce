"""A history of a fault test as the tests of its checker make it up, one write after the other."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tickrail.core.ids import JobId, launch_id

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
JOB = "0195544e-0000-7000-8000-000000000001"
OLD, NEW = "scheduler-1", "scheduler-2"
Lines = list[dict[str, Any]]


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


class Story:
    """Makes the lines of a history, one write after the other."""

    def __init__(self, *, rerun: bool = True) -> None:
        self.rerun = rerun
        self.fence: dict[str, Any] = {"partition": 0, "epoch": 0, "owner": ""}
        self.rows: dict[str, dict[str, Any]] = {}
        self.lines: Lines = [
            {
                "kind": "header",
                "partitions": 1,
                "services": {
                    OLD: "scheduler",
                    NEW: "scheduler",
                    "worker-1": "worker",
                    "worker-2": "worker",
                },
            },
            {
                "kind": "job",
                "id": JOB,
                "partition": 0,
                "effects": True,
                "definition": {
                    "name": "job",
                    "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
                    "target": {"webhook": {"url": "https://example.org/"}},
                },
            },
        ]
        self.n = 0
        job = {"id": JOB, "partition": 0, "state": "active", "next_run_at": at(1)}
        self.write(0, "", "jobs", "insert", None, {**job, "last_slot_at": None})

    def write(
        self,
        seconds: float,
        app: str,
        table: str,
        op: str,
        old: dict[str, Any] | None,
        new: dict[str, Any] | None,
    ) -> dict[str, Any]:
        self.n += 1
        line = {
            "kind": "write", "n": self.n, "at": at(seconds), "tx": str(self.n), "app": app,
            "table": table, "op": op, "old": copy.deepcopy(old), "new": copy.deepcopy(new),
            "fence": dict(self.fence),
        }  # fmt: skip
        self.lines.append(line)
        return line

    def take(self, seconds: float, app: str, epoch: int) -> None:
        old = dict(self.fence)
        self.fence = {"partition": 0, "epoch": epoch, "owner": f"{app}-0badf00d"}
        self.write(seconds, app, "partitions", "update", old, self.fence)

    def record(self, seconds: float, app: str, slot: float, origin: str = "schedule") -> str:
        scheduled = BEGIN + timedelta(seconds=slot)
        key = str(launch_id(JobId(UUID(JOB)), scheduled, origin))
        row = {
            "id": key, "job_id": JOB, "scheduled_at": at(slot), "origin": origin,
            "partition": 0, "state": "due", "attempt": 1, "failures": 0, "claim": None,
            "epoch": self.fence["epoch"], "dlq_owed": False, "rerun": self.rerun,
            "redrive_count": 0,
        }  # fmt: skip
        self.write(seconds, app, "launches", "insert", None, row)
        self.rows[key] = row
        return key

    def move(self, seconds: float, app: str, key: str, **change: Any) -> None:
        old = self.rows[key]
        new = {**old, **change}
        self.write(seconds, app, "launches", "update", old, new)
        self.rows[key] = new

    def lose(self, seconds: float, app: str, key: str, *, certain: bool = False) -> None:
        """The claim has ended without a success; the launch is due again."""
        row = self.rows[key]
        attempt = {
            "launch_id": key, "scheduled_at": row["scheduled_at"], "attempt": row["attempt"],
            "claim": row["claim"], "worker": "worker-1", "outcome": "worker_lost",
            "certain": certain,
        }  # fmt: skip
        self.write(seconds, app, "attempts", "insert", None, attempt)
        self.move(seconds, app, key, state="due", attempt=row["attempt"] + 1)

    def skip(
        self, seconds: float, first: float, last: float, reason: str = "misfire"
    ) -> dict[str, Any]:
        row = {
            "job_id": JOB, "scheduled_at": at(first), "last_at": at(last),
            "count": int(last - first) + 1, "reason": reason,
        }  # fmt: skip
        self.write(seconds, NEW, "skips", "insert", None, row)
        return row

    def effect(self, seconds: float, key: str, token: int, *, accepted: bool = True) -> None:
        self.lines.append(
            {"kind": "effect", "key": key, "token": token, "attempt": 1, "begin": at(seconds),
             "end": at(seconds + 0.01), "accepted": accepted}
        )  # fmt: skip

    def run(self, seconds: float, worker: str, key: str, claim: int) -> None:
        self.move(seconds, worker, key, state="running", claim=claim)
        self.effect(seconds, key, claim)

    def fault(self, seconds: float, name: str, victim: str, *partitions: int) -> None:
        self.lines.append(
            {"kind": "fault", "at": at(seconds), "name": name, "victim": victim,
             "partitions": list(partitions)}
        )  # fmt: skip

    def told(self, last: int) -> Lines:
        return [*self.lines, {"kind": "end", "last": at(last)}]


def good(*, rerun: bool = True) -> tuple[Story, list[str]]:
    """Slot 1 by the first owner, slot 2 by the second, after the first was killed."""
    story = Story(rerun=rerun)
    story.take(0.2, OLD, 10)
    first = story.record(1, OLD, 1)
    story.move(1.1, OLD, first, state="queued")
    story.run(1.2, "worker-1", first, 100)
    story.move(1.3, "worker-1", first, state="succeeded")
    story.fault(1.5, "kill", OLD, 0)
    story.take(5, NEW, 11)
    second = story.record(5.5, NEW, 2)
    story.run(5.6, "worker-2", second, 101)
    return story, [first, second]


def ended() -> tuple[Story, list[str]]:
    story, keys = good()
    story.move(5.7, "worker-2", keys[1], state="succeeded")
    return story, keys
