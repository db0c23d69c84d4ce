"""What happened in a fault test, as lines that can be judged again: writes, effects, faults.

The writes are recorded in the database itself: deferred triggers of the tests note each write of
launches, attempts, skips, jobs and fence rows at the end of its transaction, together with the
fence row as it is at that moment. Effects come from an HTTP receiver, faults from the test.

A history is JSON lines; `kind` is one of
  header   partitions, and the kind of each service by its name
  job      id, partition, definition, whether its successes have effects
  write    n (order of the ends of transactions per row), at, tx, app, table, op, old, new, fence
  effect   key, token, attempt, begin, end, accepted
  fault    at, name, victim, partitions, until (when it was over), what else the test tells
  end      the last slot that must have been launched and ended
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import psycopg
from tests.fault.checker import judge
from tests.fault.judgement import Judgement, too_little
from tests.support.processes import CLOCK, Installation
from tests.support.receiver import OK_ANSWER, Receiver, Request

from tickrail.core.ids import JobId

KEEP_VARIABLE = "TICKRAIL_FAULT_DIR"
"""A folder that keeps the histories."""
SECOND = timedelta(seconds=1)

_COLUMNS = {
    "launches": (
        "id", "job_id", "scheduled_at", "origin", "partition", "state", "attempt", "failures",
        "claim", "claim_expires_at", "worker", "epoch", "redrive_count", "dlq_owed",
        "cancel_requested", "rerun", "publications",
    ),
    "attempts": (
        "launch_id", "scheduled_at", "attempt", "claim", "worker", "outcome", "certain",
        "stale_result",
    ),
    "skips": ("job_id", "scheduled_at", "last_at", "count", "reason"),
    "jobs": ("id", "partition", "state", "next_run_at", "last_slot_at"),
    "partitions": ("partition", "epoch", "owner"),
}  # fmt: skip
_PARTITION = {
    "launches": "(row_ ->> 'partition')::int",
    "attempts": "(select l.partition from public.launches l"
    " where l.scheduled_at = (row_ ->> 'scheduled_at')::timestamptz"
    " and l.id = (row_ ->> 'launch_id')::uuid)",
    "skips": "(select j.partition from public.jobs j where j.id = (row_ ->> 'job_id')::uuid)",
    "jobs": "(row_ ->> 'partition')::int",
    "partitions": "(row_ ->> 'partition')::int",
}
_TABLE = """
create schema fault;
create table fault.writes (
  n bigint generated always as identity primary key, at timestamptz not null, tx text not null,
  app text not null, name text not null, op text not null, old jsonb, new jsonb, fence jsonb
);
"""
_FUNCTION = """
create function fault.note_{table}() returns trigger language plpgsql security definer
set search_path = pg_catalog set enable_seqscan = on set timezone = 'UTC' as $$
declare
  old_ jsonb; new_ jsonb; row_ jsonb; fence_ jsonb;
begin
  if tg_op <> 'INSERT' then
    select jsonb_object_agg(key, value) into old_
    from jsonb_each(to_jsonb(old)) where key = any (array[{columns}]);
  end if;
  if tg_op <> 'DELETE' then
    select jsonb_object_agg(key, value) into new_
    from jsonb_each(to_jsonb(new)) where key = any (array[{columns}]);
  end if;
  row_ := coalesce(new_, old_);
  select jsonb_build_object('partition', p.partition, 'epoch', p.epoch, 'owner', p.owner)
  into fence_ from public.partitions p where p.partition = {partition};
  insert into fault.writes (at, tx, app, name, op, old, new, fence)
  values (clock_timestamp(), pg_current_xact_id()::text, current_setting('application_name'),
    '{table}', lower(tg_op), old_, new_, fence_);
  return null;
end $$;
create constraint trigger fault_note after insert or update or delete on public.{table}
deferrable initially deferred for each row execute function fault.note_{table}();
"""


def install(found: Installation) -> None:
    """Have the database note its writes; for `prepare` of `installation`.

    The triggers are deferred: they run when the transaction ends and its locks still hold, so the
    fence that they read is the one under which the write lands, and the order of a row's lines is
    the order in which its writers ended.
    """
    with psycopg.connect(found.admin) as conn:
        conn.execute(_TABLE)
        for table, columns in _COLUMNS.items():
            conn.execute(
                _FUNCTION.format(
                    table=table,
                    columns=", ".join(f"'{c}'" for c in columns),
                    partition=_PARTITION[table],
                ).encode()
            )


@dataclass
class Effects:
    """A receiver of webhooks that notes each effect and refuses fencing tokens that are passed.

    `delay`: seconds between an effect and its answer, where its target says nothing else.
    """

    delay: float = 0.0
    noted: list[dict[str, Any]] = field(default_factory=list)
    _highest: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._receiver = Receiver(behave=self._behave)

    def __enter__(self) -> Self:
        self._receiver.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._receiver.__exit__(None, None, None)

    def target(self, delay: float | None = None) -> dict[str, Any]:
        """A job's target whose effects are noted here, and answered so many seconds later."""
        path = "/effect" if delay is None else f"/effect/{delay}"
        return {"webhook": {"url": self._receiver.url(path)}}

    def release(self) -> None:
        """Answer at once what waits here, and what is still to come."""
        self._receiver.released.set()

    def of(self, key: str) -> list[dict[str, Any]]:
        """The effects of one launch, in the order in which they came."""
        with self._lock:
            return [e for e in self.noted if e["key"] == key]

    def _behave(self, connection: socket.socket, request: Request) -> bool:
        key = request.header("Idempotency-Key") or ""
        token = int(request.header("Fencing-Token") or 0)
        effect: dict[str, Any] = {
            "kind": "effect",
            "key": key,
            "token": token,
            "attempt": int(request.header("Tickrail-Attempt") or 0),
            "begin": _text(CLOCK.now()),
            "end": None,
        }
        with self._lock:
            effect["accepted"] = token >= self._highest.get(key, 0)
            self._highest[key] = max(token, self._highest.get(key, 0))
            self.noted.append(effect)
        asked = request.path.removeprefix("/effect").removeprefix("/")
        self._receiver.released.wait(float(asked) if asked else self.delay)
        connection.sendall(
            OK_ANSWER
            if effect["accepted"]
            else b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n"
        )
        effect["end"] = _text(CLOCK.now())
        return True


class History:
    """What one test did and saw. Several tests may share an installation."""

    def __init__(self, found: Installation, effects: Effects | None = None) -> None:
        self._found = found
        self._effects = effects
        self._effects_from = len(effects.noted) if effects else 0
        self._lines: list[dict[str, Any]] = []
        self._jobs: dict[str, int] = {}
        self._since: dict[str, tuple[datetime, bool]] = {}
        """From when on each job had slots at the latest, and whether its runs have effects."""

    def add_jobs(
        self, count: int, document: Mapping[str, Any], *, effects: bool | None = None
    ) -> list[JobId]:
        """Jobs of every second whose slots and launches are judged.

        `effects`: whether each success must have an effect in the receiver; True for a webhook.
        """
        ids = self._found.add_jobs(count, document)
        if effects is None:
            effects = "webhook" in document["target"]
        since = CLOCK.now()
        rows = dict(
            self._found.query("select id, partition from jobs where id = any(%s)", list(ids))
        )
        for job in ids:
            self._jobs[str(job)] = rows[job]
            self._since[str(job)] = (since, effects)
            self._lines.append(
                {
                    "kind": "job",
                    "id": str(job),
                    "partition": rows[job],
                    "definition": {**document, "name": f"job-{job}"},
                    "effects": effects,
                }
            )
        return ids

    def fault(
        self, name: str, victim: str, *, partitions: Iterable[int] = (), **more: object
    ) -> None:
        """Note a fault that has just happened.

        Args:
            name: what was done.
            victim: the service or the server.
            partitions: those that need a new owner, for the time to recover.
            more: `at`, where it was not just now; `until`; anything else worth keeping.
        """
        self._lines.append(
            {"kind": "fault", "at": _text(CLOCK.now()), "name": name, "victim": victim,
             "partitions": sorted(partitions)}
            | {k: _text(v) if isinstance(v, datetime) else v for k, v in more.items()}
        )  # fmt: skip

    def owned_by(self, service: str) -> list[int]:
        """The partitions whose fence carries this service's name."""
        return [
            p
            for p, owner in self._found.query("select partition, owner from partitions")
            if owner.rpartition("-")[0] == service
        ]

    def ended(self, last: datetime) -> bool:
        """Whether every slot of these jobs up to this one has a record, and all of them ended."""
        return self._found.ended(list(self._jobs), last)

    def lines(self, last: datetime) -> list[dict[str, Any]]:
        """The whole history, judged up to this slot."""
        header = {
            "kind": "header",
            "partitions": self._found.partitions,
            "services": {name: s.kind for name, s in self._found.services.items()},
        }
        # One moment for both: while traffic goes on, no success is seen without its effect.
        now = CLOCK.now()
        writes = self._writes(now)
        noted = self._effects.noted[self._effects_from :] if self._effects else []
        keys = {w["new"]["id"] for w in writes if w["table"] == "launches" and w["new"]}
        mine = [dict(e) for e in noted if e["key"] in keys and e["begin"] <= _text(now)]
        end = {"kind": "end", "last": _text(last)}
        return [header, *self._lines, *writes, *mine, end]

    def _writes(self, until: datetime) -> list[dict[str, Any]]:
        found = self._found.query(
            "select n, at, tx, app, name, op, old, new, fence from fault.writes"
            " where at <= %s order by n",
            until,
        )
        writes = []
        launches: set[str] = set()
        for n, at, tx, app, table, op, old, new, fence in found:
            row = new or old
            if table == "launches" and row["job_id"] in self._jobs:
                launches.add(row["id"])
            mine = {
                "launches": row.get("job_id") in self._jobs,
                "skips": row.get("job_id") in self._jobs,
                "jobs": row.get("id") in self._jobs,
                "attempts": row.get("launch_id") in launches,
                "partitions": True,
            }[table]
            if mine:
                writes.append(
                    {"kind": "write", "n": n, "at": _text(at), "tx": tx, "app": app,
                     "table": table, "op": op, "old": old, "new": new, "fence": fence}
                )  # fmt: skip
        return writes

    def judge(self, last: datetime, folder: Path, name: str) -> Judgement:
        """Save the history, and what the checker says of it.

        Raises:
            AssertionError: a rule does not hold; names the file and each breach. Or too little is
                in it for that to mean anything.
        """
        kept = Path(os.environ.get(KEEP_VARIABLE) or folder)
        path = save(self.lines(last), kept / f"{name}.jsonl")
        judgement = judge(load(path))
        assert not judgement.breaches, f"{path}:\n" + "\n".join(map(str, judgement.breaches[:40]))
        # By the test's own clock, and not by what the database noted.
        seconds = {job: int((last - since) / SECOND) for job, (since, _) in self._since.items()}
        wanted = sum(seconds[job] for job, (_, effects) in self._since.items() if effects)
        assert not (lacks := too_little(judgement, sum(seconds.values()), wanted)), lacks
        return judgement


def save(lines: Iterable[Mapping[str, Any]], path: Path) -> Path:
    """Write a history, a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def load(path: Path) -> Sequence[dict[str, Any]]:
    """Read a history."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()
