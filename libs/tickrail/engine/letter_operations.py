"""Redrive and purge for all dead letters of a filter, the oldest first.

A redrive may have a rate: letters go by a token bucket of two seconds' worth, kept with the
operation's position, so it holds over the deaths and the number of the processes that work at it.
What dies again after the operation was asked for is not redriven by it once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from tickrail.core.dead_letters import LetterFilter, Reason
from tickrail.core.definition import NAME, instant_text
from tickrail.core.documents import Reader, nearest
from tickrail.core.errors import NotFoundError, Problem
from tickrail.core.ids import JobId, LaunchId
from tickrail.core.ports_api import JobRef, Transaction
from tickrail.core.ports_letters import LetterPlace, LetterRecord
from tickrail.core.ports_operations import OperationRecord
from tickrail.core.states import State
from tickrail.engine.job_operations import tag_filter
from tickrail.engine.job_rules import require
from tickrail.engine.launches import require_launch
from tickrail.engine.operations import (
    BATCH,
    REFUSALS,
    Asked,
    Kind,
    OperationPreview,
    Step,
    texts,
)
from tickrail.engine.quotas import check_payload
from tickrail.engine.redrive import REDRIVABLE, Edit, read_edit, redrive_locked

E = TypeVar("E", bound=StrEnum)

SAMPLE = 20
"""Letters that a dry run shows."""
COUNTED = 1_000_000
"""Up to so many letters are counted."""
MOST_IDS = 100
"""Launches that a filter may name."""
MOST_PER_MINUTE = 60_000
BURST = 2.0
"""Seconds' worth of letters that may go at once after a pause: 3.3 % of a minute's."""
SHORTEST_WAIT = 0.2
"""Seconds between two batches under a rate."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A token bucket: how many letters may go, and when that was reckoned."""

    tokens: float
    at: datetime

    def now(self, at: datetime, per_minute: int) -> Pace:
        """The bucket at an instant."""
        gained = max(0.0, (at - self.at).total_seconds()) * per_minute / 60
        return Pace(min(self.tokens + gained, 1 + BURST * per_minute / 60), at)

    def wait(self, per_minute: int) -> float:
        """Seconds until there is at least one token more, and a batch is worth while."""
        if self.tokens >= BATCH:
            return 0.0
        return max(SHORTEST_WAIT, (1 - self.tokens) * 60 / per_minute)


class LetterWork:
    """`operations.Work`: redrive and purge."""

    kinds: Sequence[Kind] = (Kind.REDRIVE, Kind.PURGE)

    def ask(self, tx: Transaction, kind: Kind, document: object) -> Asked | OperationPreview:
        """Read a request.

        Raises:
            InvalidInputError: the document is not valid.
        """
        reader = Reader({} if document is None else document)
        dry_run = reader.flag("dry_run", default=False)
        request: dict[str, Any] = {}
        where = LetterFilter()
        if reader.has("filter"):
            child = reader.child("filter")
            where = read_filter(tx, child)
            reader.absorb(child)
        else:
            reader.problem("filter", "is missing", "which dead letters; {} for all of them")
        for name, most in (("max_count", COUNTED), ("per_minute", MOST_PER_MINUTE)):
            if (kind is Kind.REDRIVE or name == "max_count") and reader.has(name):
                request[name] = reader.whole(name, 1, low=1, high=most)
        edit = read_edit(reader) if kind is Kind.REDRIVE else Edit()
        if edit.has_payload:
            request["payload"] = edit.payload
        reader.finish("operation")
        check_payload(tx, edit.payload)
        total = tx.letters.count(where, tx.now, request.get("max_count", COUNTED))
        if dry_run:
            first = tx.letters.batch(where, tx.now, None, min(SAMPLE, total) or 1)
            return OperationPreview(total, letters=first)
        return Asked(total, {"filter": filter_document(where), **request})

    def step(self, tx: Transaction, operation: OperationRecord) -> Step:
        """The next batch."""
        request = operation.request
        where = read_filter(tx, Reader(request["filter"]))
        most = request.get("max_count", COUNTED) - operation.done
        place, pace = _read_position(operation)
        rate: int | None = request.get("per_minute")
        limit = min(BATCH, most)
        if rate is not None:
            pace = pace.now(tx.now, rate)
            limit = min(limit, int(pace.tokens))
        letters = tx.letters.batch(where, operation.created_at, place, limit) if limit else []
        changed, errors = 0, list[Mapping[str, Any]]()
        if operation.kind == Kind.PURGE:
            changed = self._purge(tx, letters)
        elif letters:
            edit = Edit(request.get("payload"), "payload" in request)
            changed, errors = self._redrive(tx, letters, edit)
        if letters:
            place = LetterPlace(letters[-1].died_at, letters[-1].launch.id)
        pace = Pace(pace.tokens - len(letters), pace.at)
        return Step(
            _write_position(place, pace),
            len(letters),
            changed,
            errors,
            more=len(letters) == limit and len(letters) < most,
            wait=0.0 if rate is None else pace.wait(rate),
        )

    def _redrive(
        self, tx: Transaction, letters: Sequence[LetterRecord], edit: Edit
    ) -> tuple[int, list[Mapping[str, Any]]]:
        # First all jobs, then all launches, each in the order of ids: as everybody locks them.
        jobs = {job: require(tx, job, lock=True) for job in sorted({x.launch.job for x in letters})}
        ids = sorted(x.launch.id for x in letters)
        tx.letters.lock(ids)
        changed, errors = 0, list[Mapping[str, Any]]()
        for letter in letters:
            try:
                seen = require_launch(tx, letter.launch.id)
                if seen.redrive_count != letter.launch.redrive_count:
                    continue  # somebody else was quicker
                redrive_locked(tx, jobs[seen.job], seen, edit)
            except REFUSALS as e:
                job = {"id": str(letter.launch.job), "name": letter.launch.job_name}
                entry = {"job": job, "launch": str(letter.launch.id)}
                errors.append({**entry, "code": e.code, "detail": str(e)[:500]})
            else:
                changed += 1
        tx.wake_schedulers()
        return changed, errors

    def _purge(self, tx: Transaction, letters: Sequence[LetterRecord]) -> int:
        ids = sorted(x.launch.id for x in letters)
        purged = tx.letters.purge(ids) if ids else 0
        if purged:
            after = {"count": purged, "launches": [str(x) for x in ids]}
            tx.audit("dead_letters.purge", "dead_letters", None, after)
        return purged


def read_filter(tx: Transaction, reader: Reader) -> LetterFilter:
    """A filter's document; what is wrong with it is noted in the reader."""
    found = LetterFilter(
        launches=_launches(reader),
        job=_job(tx, reader),
        queue=reader.text("queue", pattern=NAME, expected="the name of a queue"),
        reasons=_members(reader, "reason", Reason, tuple(Reason)),
        states=_members(reader, "state", State, sorted(REDRIVABLE)),
        tags=tag_filter(reader),
        since=reader.instant("from"),
        until=reader.instant("to"),
    )
    if found.since is not None and found.until is not None and found.until <= found.since:
        reader.problem("to", "is not after from", "a later instant; it is not included")
    reader.without_empty()
    return found


def filter_document(where: LetterFilter) -> dict[str, Any]:
    """The document of a filter: its job by id, since a name may be another's later."""
    whole = {
        "launch": [str(x) for x in where.launches],
        "job": None if where.job is None else str(where.job),
        "queue": where.queue,
        "reason": [r.value for r in where.reasons],
        "state": [s.value for s in where.states],
        "tag": [key if value is None else f"{key}:{value}" for key, value in where.tags],
        "from": instant_text(where.since),
        "to": instant_text(where.until),
    }
    return {name: value for name, value in whole.items() if value}


def _launches(reader: Reader) -> list[LaunchId]:
    found: list[LaunchId] = []
    for n, text in enumerate(texts(reader, "launch", MOST_IDS)):
        try:
            found.append(LaunchId(UUID(text)))
        except ValueError:
            where = f"{reader.pointer}/launch/{n}"
            reader.problems.append(Problem(where, f"is {text[:80]!r}", "the id of a launch"))
    return found


def _job(tx: Transaction, reader: Reader) -> JobId | None:
    text = reader.text("job", maximum=140)
    if text is None:
        return None
    name = text.removeprefix("name:")
    try:
        ref: JobRef = name if name != text else JobId(UUID(text))
        return require(tx, ref).id
    except NotFoundError:
        reader.problem(
            "job", f"is {text!r}, and there is no such job", "a job's id, or name:<name>"
        )
    except ValueError:
        reader.problem("job", f"is {text!r}", "a job's id, or name:<name>")
    return None


def _members(reader: Reader, name: str, kind: type[E], known: Sequence[E]) -> list[E]:
    found: list[E] = []
    for n, text in enumerate(texts(reader, name)):
        if text in known:
            found.append(kind(text))
        else:
            where = f"{reader.pointer}/{name}/{n}"
            reader.problems.append(Problem(where, f"is {text[:60]!r}", nearest(text, known)))
    return found


def _read_position(operation: OperationRecord) -> tuple[LetterPlace | None, Pace]:
    """Where the operation is, and its pace; one that begins may take one letter at once."""
    stored = operation.position
    if stored is None:
        return None, Pace(1.0, operation.created_at)
    at = stored["died_at"]
    place = at and LetterPlace(datetime.fromisoformat(at), LaunchId(UUID(stored["launch"])))
    return place, Pace(stored["tokens"], datetime.fromisoformat(stored["reckoned_at"]))


def _write_position(place: LetterPlace | None, pace: Pace) -> Mapping[str, Any]:
    return {
        "died_at": place and place.died_at.isoformat(),
        "launch": place and str(place.launch),
        "tokens": pace.tokens,
        "reckoned_at": pace.at.isoformat(),
    }
