"""Definitions as code, decided: which documents there are, what differs, how that is shown.

Nothing here speaks to the API; `definition_apply.py` does.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from tickrail.core.calendars import parse_calendar
from tickrail.core.crontab_jobs import SET_TAG
from tickrail.core.definition import NAME, NAME_EXPECTED, parse_definition
from tickrail.core.documents import nearest, type_name
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.ids import JobId
from tickrail.core.queues import read_limits
from tickrail.engine.job_rules import same
from tickrail.engine.jobs import ANSWER_FIELDS
from tickrail_cli.definition_files import Source
from tickrail_cli.yaml_documents import dump_yaml

JOB, CALENDAR, LIMITS = "job", "calendar", "queue-limits"
KINDS = (CALENDAR, LIMITS, JOB)
"""In the order in which they are applied: jobs name calendars and are in queues."""
OF_FILES = frozenset({"kind", "$schema"})
"""What a document has for files and editors, and the API does not know."""
_CALENDAR_ANSWER = frozenset({"version", "created_at", "updated_at", "moved"})
_LONG_AGO = datetime(1971, 2, 3, 4, 5, 6, tzinfo=UTC)
"""Before the end of every schedule, and nothing that anybody would write as an anchor."""
_LEVELS = 4
_BARE: Mapping[str, Any] = {"name": "a", "target": {"noop": {}}}
_AS_IT_IS = frozenset({"tags", "payload"})
"""Members whose members are their owner's own."""


@dataclass(frozen=True)
class Item:
    """One definition that is wanted.

    Attributes:
        source: where it stands.
        kind: one of `KINDS`.
        name: of the job, the calendar, or the queue.
        document: as the API takes it.
    """

    source: Source
    kind: str
    name: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Refusal:
    """What is wrong with a document."""

    source: Source
    name: str
    problem: Problem

    def __str__(self) -> str:
        p = self.problem
        named = f"{self.name}: " if self.name else ""
        at = f"{p.pointer}: " if p.pointer else ""
        right = f" ({p.expected})" if p.expected else ""
        return f"{self.source.where(p.pointer)}: {named}{at}{p.message}{right}"

    def document(self) -> dict[str, Any]:
        """For programs."""
        p = self.problem
        where = {"file": self.source.file, "where": self.source.where(p.pointer)}
        return where | {
            "name": self.name, "pointer": p.pointer, "message": p.message, "expected": p.expected,
        }  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What is to become of one definition.

    Attributes:
        kind: one of `KINDS`.
        name: of the job, the calendar, or the queue.
        action: `created`, `changed`, `unchanged` or `deleted`.
        before: the canonical document that there is, without what is the default; None for none.
        after: the one that there will be.
        item: the document that is wanted; None for what is deleted.
        version: of what there is; what is sent names it, so that no other's change is lost.
        note: what else comes of it.
    """

    kind: str
    name: str
    action: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    item: Item | None = None
    version: int | None = None
    note: str = ""


def items_of(sources: Iterable[Source], set_name: str | None) -> tuple[list[Item], list[Refusal]]:
    """The definitions of documents, and what is wrong with those that are none.

    A job's document is a definition also where its name or its tags are wrong: the API is asked
    what else is.

    Args:
        sources: the documents.
        set_name: the tag that marks their jobs; None leaves the tags alone.
    """
    items: list[Item] = []
    refusals: list[Refusal] = []
    for source in sources:
        item, problems = _item(source, set_name)
        if problems:
            document = source.document
            name = document.get("name", "") if isinstance(document, dict) else ""
            refusals += [Refusal(source, str(name)[:128], p) for p in problems]
        if item is not None:
            items.append(item)
    seen: dict[tuple[str, str], Item] = {}
    for item in items:
        if not NAME.fullmatch(item.name):
            continue
        first = seen.setdefault((item.kind, item.name), item)
        if first is not item:
            there = f"another document for this {item.kind} is at {first.source.where('/name')}"
            refusals.append(Refusal(item.source, item.name, Problem("/name", there, "one of them")))
    items.sort(key=lambda item: KINDS.index(item.kind))
    return items, refusals


def _item(source: Source, set_name: str | None) -> tuple[Item | None, list[Problem]]:
    """The definition of a document, as far as it is one, and what is wrong with it."""
    document = source.document
    if not isinstance(document, dict):
        right = "an object: a job, a calendar, queue-limits"
        return None, [Problem("", f"is {type_name(document)}", right)]
    kind = document.get("kind", JOB)
    if kind not in KINDS:
        shown = str(kind)[:60]
        return None, [Problem("/kind", f"is {shown!r}", nearest(shown, KINDS))]
    problems: list[Problem] = []
    name = document.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        said = "is missing" if name is None else f"is {str(name)[:60]!r}"
        problems.append(Problem("/name", said, NAME_EXPECTED))
        if kind != JOB:
            return None, problems
        name = ""
    left = OF_FILES | ANSWER_FIELDS if kind == JOB else OF_FILES
    wanted = {key: value for key, value in document.items() if key not in left}
    if kind == JOB and set_name is not None:
        wanted["tags"], wrong = _tagged(wanted.get("tags"), set_name)
        problems += wrong
    return Item(source, kind, name, wanted), problems


def _tagged(tags: object, set_name: str) -> tuple[object, list[Problem]]:
    """The tags with that of the set; what is no object is left to the API to refuse."""
    if tags is None:
        return {SET_TAG: set_name}, []
    if not isinstance(tags, dict):
        return tags, []
    own = tags.get(SET_TAG, set_name)
    if own == set_name:
        return {**tags, SET_TAG: set_name}, []
    said = f"is {str(own)[:60]!r}, and the set is {set_name!r}"
    return tags, [Problem(f"/tags/{SET_TAG}", said, "leave it out, or say --set or --no-set")]


def job_definition(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What of a job's answer is its definition."""
    return {k: v for k, v in answer.items() if k not in ANSWER_FIELDS and k != "paused"}


def is_unchanged(document: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Whether a job's document says what there is already, as far as can be told from here.

    False also where this version does not know: the API is asked then.
    """
    definition = job_definition(answer)
    wanted = {k: v for k, v in document.items() if k not in ANSWER_FIELDS and k != "paused"}
    anchor = (definition.get("schedule") or {}).get("anchor")
    bases = [_LONG_AGO, *([datetime.fromisoformat(anchor)] if isinstance(anchor, str) else [])]
    return any(same(_canonical(wanted, str(answer["id"]), base), definition) for base in bases)


def _canonical(document: Mapping[str, Any], job: str, now: datetime) -> dict[str, Any] | None:
    try:
        return parse_definition(dict(document), job=JobId(UUID(job)), now=now).document()
    except (InvalidInputError, ValueError):
        return None


def minimal_job(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A job's answer as somebody would write it: its definition without what is the default."""
    whole, job = job_definition(answer), str(answer["id"])
    if not same(_canonical(whole, job, _LONG_AGO), whole):
        return whole  # of a newer version: what is a default is not known here
    usual = _defaults()
    return {
        key: value if key in _AS_IT_IS else _shortest(key, _other(value, usual.get(key)), job)
        for key, value in whole.items()
        if key in ("name", "target") or not same(value, usual.get(key))
    }


def _other(value: Any, default: Any) -> Any:  # noqa: ANN401 - any JSON
    """A member's members that are not the defaults."""
    if isinstance(value, dict) and isinstance(default, dict):
        return {k: v for k, v in value.items() if k not in default or not same(v, default[k])}
    return value


@cache
def _defaults() -> Mapping[str, Any]:
    """A definition of nothing but defaults."""
    return _canonical(_BARE, str(UUID(int=0)), _LONG_AGO) or {}


def _shortest(key: str, value: Any, job: str) -> Any:  # noqa: ANN401 - any JSON
    """A member without what the rest of it says already."""

    def meaning(tried: object) -> object:
        found = _canonical({**_BARE, key: tried}, job, _LONG_AGO)
        return None if found is None else found[key]

    if not isinstance(value, dict):
        return value
    whole = meaning(value)
    if whole is None:
        return value
    for path in list(_leaves(value, ())):
        shorter = _without(value, path)
        if same(meaning(shorter), whole):
            value = shorter
    return value


def _leaves(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - any JSON
    """The members inside a value; those of objects in it first."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        if isinstance(inner, dict | list) and len(path) < _LEVELS:
            yield from _leaves(inner, (*path, key))
        if isinstance(value, dict):
            yield (*path, key)


def _without(value: Any, path: Sequence[str | int]) -> Any:  # noqa: ANN401 - any JSON
    first, *rest = path
    if isinstance(value, list):
        return [_without(inner, rest) if i == first else inner for i, inner in enumerate(value)]
    if not rest:
        return {k: v for k, v in value.items() if k != first}
    return {**value, first: _without(value[first], rest)}


def minimal_calendar(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A calendar's answer as somebody would write it."""
    found = {k: v for k, v in answer.items() if k not in _CALENDAR_ANSWER and v not in ("", [])}
    return {k: v for k, v in found.items() if (k, v) != ("time_zone", "UTC")}


def calendar_is_unchanged(document: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """As `is_unchanged`, of a calendar."""
    name = str(answer["name"])
    try:
        wanted = parse_calendar(dict(document), name=name).document
    except InvalidInputError:
        return False
    there = {k: v for k, v in answer.items() if k not in _CALENDAR_ANSWER and k != "name"}
    return same(dict(wanted), there)


def limits_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that a document wants.

    Raises:
        InvalidInputError: with every problem.
    """
    return read_limits({k: v for k, v in document.items() if k != "name"}).document()


def minimal_limits(name: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """A tenant's limits in a queue as somebody would write them."""
    return {"name": name, **{k: limits[k] for k in ("max_running", "rate") if limits.get(k)}}


def counts(changes: Iterable[Change]) -> dict[str, int]:
    """How many are created, changed, unchanged and deleted."""
    found = Counter(change.action for change in changes)
    return {action: found[action] for action in ("created", "changed", "unchanged", "deleted")}


def diff_lines(change: Change) -> list[str]:
    """The lines that a change adds (`+`) and takes (`-`), with those around them."""
    in_order = _like(change.before, change.after)
    before, after = (_lines(change.kind, d) for d in (in_order, change.after))
    found = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    return [line for line in found if not line.startswith("@@")]


def _like(value: Any, model: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value with the members of its objects in the order of another: order is no difference."""
    if isinstance(value, dict) and isinstance(model, dict):
        keys = [*(k for k in model if k in value), *(k for k in value if k not in model)]
        return {key: _like(value[key], model.get(key)) for key in keys}
    if isinstance(value, list) and isinstance(model, list):
        return [_like(one, model[i] if i < len(model) else None) for i, one in enumerate(value)]
    return value


def _lines(kind: str, document: Mapping[str, Any] | None) -> list[str]:
    if document is None:
        return []
    return dump_yaml(({} if kind == JOB else {"kind": kind}) | dict(document)).splitlines()
