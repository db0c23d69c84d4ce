"""Definitions as code, carried out: what there is, what would come of a document, the writes.

Nothing is written before the API has looked at every document that differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tickrail.core.crontab_jobs import SET_TAG
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.sdk.client import ApiError, Client
from tickrail_cli.calendars import calendar_path
from tickrail_cli.definition_files import Source
from tickrail_cli.definitions import (
    CALENDAR,
    JOB,
    KINDS,
    LIMITS,
    Change,
    Item,
    Refusal,
    calendar_is_unchanged,
    is_unchanged,
    limits_of,
    minimal_calendar,
    minimal_job,
    minimal_limits,
)
from tickrail_cli.jobs import job_path
from tickrail_cli.queues import queue_path

A = TypeVar("A")
B = TypeVar("B")

Found = list[Change | Sequence[Refusal]]
"""What became of several, one for each."""
_AT_ONCE = 8
_BATCH = 200
_BATCH_BYTES = 4 * 1024 * 1024
_AT = re.compile(r"^/jobs/\d+")
_TAKEN, _NO_ROOM = "name_taken", "quota_exceeded"
_PAGE = 500
_BAD_REQUEST, _NOT_FOUND, _CONFLICT, _CHANGED, _INVALID = 400, 404, 409, 412, 422
_OF_DOCUMENT = frozenset({_BAD_REQUEST, _NOT_FOUND, _CONFLICT, _CHANGED, 413, _INVALID})
"""Refusals that are about one document; others, such as a key without the scope, end everything."""
_NEW = {"If-None-Match": "*"}
_REHEARSE = {"dry_run": "true"}


@dataclass
class Plan:
    """What is to be done, and what is wrong with the documents."""

    changes: list[Change] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def differences(self) -> list[Change]:
        """All but what is as it should be."""
        return [change for change in self.changes if change.action != "unchanged"]


class Applier:
    """Brings what there is to what documents say.

    Args:
        client: of the API; used by several threads.
        told: called after each document that was looked at or written.
    """

    def __init__(self, client: Client, told: Callable[[], object] = lambda: None) -> None:
        self._client = client
        self._told = told

    def plan(self, items: Sequence[Item], set_name: str | None, *, prune: bool) -> Plan:
        """What would have to be done; writes nothing.

        Args:
            items: the documents.
            set_name: the set that their jobs are of.
            prune: whether jobs of the set that no document names are to be deleted.

        Raises:
            ApiError: the API refuses the caller.
            UnreachableError: no answer.
        """
        plan, there = Plan(), self._set(set_name)
        for kind, look in ((CALENDAR, self._calendar), (LIMITS, self._limits)):
            self._gather(plan, look, [item for item in items if item.kind == kind])
        fresh = {c.name for c in plan.changes if c.kind == CALENDAR and c.action == "created"}
        jobs = [item for item in items if item.kind == JOB]
        known = [item for item in jobs if item.name in there]
        self._gather(plan, lambda item: self._job(item, there.get(item.name), fresh), known)
        self._gather_many(
            plan,
            lambda many: self._rehearse(many, fresh),
            [item for item in jobs if item.name not in there],
        )
        if prune:
            kept = {item.name for item in jobs}
            plan.changes += [
                Change(JOB, name, "deleted", minimal_job(job), version=job["version"])
                for name, job in sorted(there.items())
                if name not in kept
            ]
        return plan

    def carry_out(self, plan: Plan) -> Plan:
        """Do what is planned, calendars first, deletions last; what was done, what was refused.

        Raises:
            ApiError: the API refuses the caller.
            UnreachableError: no answer; what was done until then stays.
        """
        done = Plan([c for c in plan.changes if c.action == "unchanged"])
        writes = [c for c in plan.differences if c.action != "deleted"]
        for kind in KINDS:
            here = [c for c in writes if c.kind == kind]
            new = [c.item for c in here if c.item is not None and _is_new_job(c)]
            self._gather(done, self._write, [c for c in here if not _is_new_job(c)])
            self._gather_many(done, self._create, new)
        if not done.refusals:
            # A job that was not written might be the new name of one that is to go.
            self._gather(done, self._delete, [c for c in plan.changes if c.action == "deleted"])
        return done

    def _gather(
        self, plan: Plan, call: Callable[[A], Change | Sequence[Refusal]], given: Sequence[A]
    ) -> None:
        for found in _at_once(call, given):
            self._took(plan, found)

    def _gather_many(
        self, plan: Plan, call: Callable[[Sequence[Item]], Found], items: list[Item]
    ) -> None:
        for found in _at_once(call, chunks(items)):
            for one in found:
                self._took(plan, one)

    def _took(self, plan: Plan, found: Change | Sequence[Refusal]) -> None:
        self._told()
        if isinstance(found, Change):
            plan.changes.append(found)
        else:
            plan.refusals += found

    def _set(self, set_name: str | None) -> dict[str, Mapping[str, Any]]:
        if set_name is None:
            return {}
        params: dict[str, str | int] = {"tag": f"{SET_TAG}:{set_name}", "limit": _PAGE}
        return {job["name"]: job for job in self._client.pages("/v1/jobs", params)}

    def _found(self, path: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self._client.request("GET", path)
        except ApiError as e:
            if e.status != _NOT_FOUND:
                raise
            return None
        return found

    def _job(
        self, item: Item, there: Mapping[str, Any] | None, fresh: set[str]
    ) -> Change | Sequence[Refusal]:
        """What becomes of a job that is there; `fresh`: calendars that are made before it."""
        if there is None:
            problem = Problem("/name", "was taken a moment ago, and is no more", "apply again")
            return [Refusal(item.source, item.name, problem)]
        if is_unchanged(item.document, there):
            return Change(JOB, item.name, "unchanged", item=item)
        document, version = without_calendars(item.document, fresh), there["version"]
        path, headers = job_path(f"name:{item.name}"), _precondition(version)
        try:
            after = self._client.request("PUT", path, document, _REHEARSE, headers)
        except ApiError as e:
            return _refused(item, e)
        if after["version"] == version and document is item.document:
            return Change(JOB, item.name, "unchanged", item=item)
        shown = _whole(after, item, document)
        return Change(JOB, item.name, "changed", minimal_job(there), shown, item, version)

    def _rehearse(self, items: Sequence[Item], fresh: set[str]) -> Found:
        """What becomes of jobs that are not in the set: most of them are new."""
        documents = [without_calendars(item.document, fresh) for item in items]
        results = self._batch(documents, dry_run=True)
        found: Found = []
        for item, document, result in zip(items, documents, results, strict=True):
            if result["error"] is None:
                after = _new(_whole(result["job"], item, document), item)
                found.append(Change(JOB, item.name, "created", None, after, item))
            elif result["error"]["code"] == _TAKEN:  # by a job of no set, or of another one
                there = self._found(job_path(f"name:{item.name}"))
                found.append(self._job(item, there, fresh))
            else:
                found.append(_refused_one(item, result["error"]))
        return found

    def _create(self, items: Sequence[Item]) -> Found:
        results = self._batch([item.document for item in items], dry_run=False)
        return [
            Change(JOB, item.name, "created", item=item)
            if result["error"] is None
            else _refused_one(item, result["error"])
            for item, result in zip(items, results, strict=True)
        ]

    def _batch(
        self, documents: Sequence[Mapping[str, Any]], *, dry_run: bool
    ) -> Sequence[Mapping[str, Any]]:
        body = {"jobs": list(documents), "dry_run": dry_run}
        answer: Mapping[str, Any] = self._client.request("POST", "/v1/jobs/batch", body)
        items: Sequence[Mapping[str, Any]] = answer["items"]
        return items

    def _calendar(self, item: Item) -> Change | Sequence[Refusal]:
        path = calendar_path(item.name)
        there = self._found(path)
        if there is not None and calendar_is_unchanged(item.document, there):
            return Change(CALENDAR, item.name, "unchanged", item=item)
        version = _version(there)
        headers = _precondition(version)
        try:
            after = self._client.request("PUT", path, item.document, _REHEARSE, headers)
        except ApiError as e:
            return _refused(item, e)
        if there is not None and after["version"] == version:
            return Change(CALENDAR, item.name, "unchanged", item=item)
        moved = after["moved"]["jobs"]
        note = f"{moved} job{'s move' if moved != 1 else ' moves'}" if moved else ""
        before = None if there is None else minimal_calendar(there)
        action = "created" if there is None else "changed"
        return Change(
            CALENDAR, item.name, action, before, minimal_calendar(after), item, version, note
        )

    def _limits(self, item: Item) -> Change | Sequence[Refusal]:
        try:
            wanted = limits_of(item.document)
        except InvalidInputError as e:
            return [Refusal(item.source, item.name, p) for p in e.problems]
        queue = self._found(queue_path(item.name))
        part = None if queue is None else queue["tenant"]
        if part is None:
            said = "there is no such queue" if queue is None else "an operator's key has no limits"
            right = "the name of a queue" if queue is None else "a tenant's key, or --tenant"
            return [Refusal(item.source, item.name, Problem("/name", said, right))]
        there = {key: part[key] for key in wanted}
        if there == wanted:
            return Change(LIMITS, item.name, "unchanged", item=item)
        before, after = (minimal_limits(item.name, limits) for limits in (there, wanted))
        wanting = replace(item, document=wanted)
        return Change(LIMITS, item.name, "changed", before, after, wanting, part["version"])

    def _write(self, change: Change) -> Change | Sequence[Refusal]:
        item = change.item
        if item is None:
            raise TypeError("only what a document names is written")
        path, method = {
            JOB: (job_path(f"name:{item.name}"), "PUT"),
            CALENDAR: (calendar_path(item.name), "PUT"),
            LIMITS: (queue_path(item.name), "PATCH"),
        }[item.kind]
        headers = _precondition(change.version)
        try:
            self._client.request(method, path, item.document, headers=headers)
        except ApiError as e:
            if e.status == _CHANGED and self._is_done(item, path):
                return change  # a try whose answer was lost did it
            return _refused(item, e)
        return change

    def _is_done(self, item: Item, path: str) -> bool:
        there = self._found(path) if item.kind == JOB else None
        return there is not None and is_unchanged(item.document, there)

    def _delete(self, change: Change) -> Change | Sequence[Refusal]:
        path, headers = job_path(f"name:{change.name}"), _precondition(change.version)
        try:
            self._client.request("DELETE", path, headers=headers)
        except ApiError as e:
            return _refused(Item(Source("--prune", None), JOB, change.name, {}), e)
        return change


def _is_new_job(change: Change) -> bool:
    return change.kind == JOB and change.action == "created"


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items in batches of a bounded number and size."""
    batch: list[Item] = []
    size = 0
    for item in items:
        length = len(json.dumps(item.document))
        if batch and (len(batch) >= _BATCH or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


def _whole(after: Mapping[str, Any], item: Item, sent: Mapping[str, Any]) -> dict[str, Any]:
    """A job as it will be, with the calendars that a rehearsal had to leave out."""
    shown = minimal_job(after)
    return shown if sent is item.document else shown | {"calendars": item.document["calendars"]}


def _new(after: dict[str, Any], item: Item) -> dict[str, Any]:
    """A new job as it will be: what it is measured from is the moment at which it is made."""
    wanted, schedule = item.document.get("schedule"), after.get("schedule")
    if isinstance(wanted, dict) and isinstance(schedule, dict) and "anchor" not in wanted:
        schedule = {key: value for key, value in schedule.items() if key != "anchor"}
        return {**after, "schedule": schedule}
    return after


def without_calendars(document: Mapping[str, Any], fresh: set[str]) -> Mapping[str, Any]:
    """The document without calendars that are not there yet, but will be when it is written."""
    use = document.get("calendars")
    if not isinstance(use, dict) or not fresh:
        return document
    left = {
        key: [name for name in use[key] if name not in fresh]
        for key in ("exclude", "include")
        if isinstance(use.get(key), list)
    }
    same = all(left[key] == use[key] for key in left)
    return document if same else {**document, "calendars": {**use, **left}}


def _version(there: Mapping[str, Any] | None) -> int | None:
    return None if there is None else int(there["version"])


def _precondition(version: int | None) -> dict[str, str]:
    return dict(_NEW) if version is None else {"If-Match": f'"{version}"'}


def _refused_one(item: Item, error: Mapping[str, Any]) -> list[Refusal]:
    """What the API said of one job of a batch."""
    problems = [
        Problem(_AT.sub("", p["pointer"]), p["message"], p["expected"]) for p in error["errors"]
    ]
    found = problems or [Problem("", error["detail"])]
    return [Refusal(item.source, item.name, p) for p in found]


def _refused(item: Item, error: ApiError) -> list[Refusal]:
    """What the API said of one document.

    Raises:
        ApiError: it is not about the document.
    """
    if error.status not in _OF_DOCUMENT and error.code != _NO_ROOM:
        raise error
    if error.status == _CHANGED:
        problems = [Problem("", "was changed by somebody else meanwhile", "apply again")]
    else:
        problems = [Problem(p.pointer, p.message, p.expected) for p in error.problems]
    found = problems or [Problem("", error.detail)]
    return [Refusal(item.source, item.name, p) for p in found]


def _at_once(call: Callable[[A], B], given: Iterable[A]) -> Iterator[B]:
    """The answers in order, several calls at a time; after an error no further one begins."""
    with _pool() as pool:
        yield from pool.map(call, given)


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(_AT_ONCE, "apply")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
