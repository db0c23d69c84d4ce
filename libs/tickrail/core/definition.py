"""A job as its owner wrote it: the document of the API, validated, with its defaults filled in.

`parse_definition` is the one validator; the API, the importers and the tests all go through it.
`Plan` is the part the tick needs, kept beside the job's next run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tickrail.core.documents import (
    Reader,
    escape,
    json_problems,
    least_size,
    text_problem,
    type_name,
)
from tickrail.core.durations import format_duration
from tickrail.core.errors import Problem
from tickrail.core.ids import JobId
from tickrail.core.on_failures import ChannelKind, OnFailures, read_on_failures
from tickrail.core.policies import (
    CatchUpOrder,
    Concurrency,
    IfUncertain,
    Misfire,
    MisfirePolicy,
    Overlap,
    Priority,
    Retry,
)
from tickrail.core.retry_document import read_retry, retry_document
from tickrail.core.schedule import Schedule, parse_schedule, schedule_document
from tickrail.core.target_kafka import Kafka
from tickrail.core.targets import (
    parse_target,
    readable_kinds,
    target_document,
    target_kind,
    target_secrets,
)
from tickrail.core.timetable import Allowance, CalendarUse, OnExcluded, Timetable

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
NAME_EXPECTED = "1 to 128 of a-z, 0-9, '.', '_', '-', the first a letter or digit"
TAG_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
MAX_TAGS = 32
_TAG_VALUE = 256
MAX_PAYLOAD = 256 * 1024
MAX_CALENDARS = 20
"""So many calendars a job may name."""
MAX_KEY = 200
"""Characters of a concurrency key."""
_KEY = re.compile(r".+", re.DOTALL)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tick reads of a job: when it fires and what a launch of it carries.

    `calendars` is what the job names; `allowance` those calendars themselves, put there by whoever
    has read them. Without it, every time is allowed.
    """

    schedule: Schedule | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_launches: int | None = None
    jitter: timedelta = timedelta(0)
    misfire: Misfire = field(default_factory=Misfire)
    overlap: Overlap = Overlap.SKIP
    if_uncertain: IfUncertain = IfUncertain.RERUN
    queue: str = "default"
    priority: Priority = Priority.NORMAL
    concurrency: Concurrency | None = None
    max_attempts: int = 5
    visibility_timeout: timedelta = timedelta(seconds=30)
    start_deadline: timedelta | None = None
    calendars: CalendarUse | None = None
    allowance: Allowance | None = None

    @property
    def timetable(self) -> Timetable | None:
        """When it is due, calendars included; None: by hand only."""
        return None if self.schedule is None else Timetable(self.schedule, self.allowance)


@dataclass(frozen=True, slots=True)
class Definition:
    """A job's whole definition. `document()` is its canonical form."""

    name: str
    target: Any
    plan: Plan = field(default_factory=Plan)
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    payload: Any = None
    timeout: timedelta = timedelta(minutes=1)
    retry: Retry = field(default_factory=Retry)
    on_failures: OnFailures | None = None

    @property
    def kind(self) -> str:
        """The kind of target: `webhook`, `command`, ..."""
        return target_kind(self.target)

    @property
    def secrets(self) -> list[tuple[str, str]]:
        """The secrets that it names: where in the document (a JSON pointer), and the name."""
        return [*target_secrets(self.target), *self._channels(ChannelKind.WEBHOOK)]

    @property
    def topics(self) -> list[tuple[str, str]]:
        """The topics that it sends to: where in the document, and the name."""
        own = self.target
        named = [("/target/kafka/topic", own.topic)] if isinstance(own, Kafka) else []
        return [*named, *self._channels(ChannelKind.KAFKA)]

    def _channels(self, kind: ChannelKind) -> list[tuple[str, str]]:
        notify = () if self.on_failures is None else self.on_failures.notify
        found = enumerate(notify)
        return [(f"/on_failures/notify/{i}", c.name) for i, c in found if c.kind is kind]

    def document(self) -> dict[str, Any]:
        """The canonical JSON document, every default filled in."""
        p, m, r = self.plan, self.plan.misfire, self.retry
        return {
            "name": self.name,
            "description": self.description,
            "tags": dict(self.tags),
            "schedule": None if p.schedule is None else schedule_document(p.schedule),
            "starts_at": instant_text(p.starts_at),
            "ends_at": instant_text(p.ends_at),
            "max_launches": p.max_launches,
            "jitter": format_duration(p.jitter),
            "calendars": None if p.calendars is None else calendars_document(p.calendars),
            "misfire": {
                "policy": m.policy.value,
                "grace": format_duration(m.grace),
                "max_count": m.max_count,
                "max_age": format_duration(m.max_age),
                "order": m.order.value,
                "per_minute": m.per_minute,
            },
            "overlap": p.overlap.value,
            "if_uncertain": p.if_uncertain.value,
            "target": target_document(self.target),
            "payload": self.payload,
            "queue": p.queue,
            "priority": p.priority.value,
            "concurrency": None
            if p.concurrency is None
            else {"key": p.concurrency.key, "limit": p.concurrency.limit},
            "timeout": format_duration(self.timeout),
            "start_deadline": None
            if p.start_deadline is None
            else format_duration(p.start_deadline),
            "visibility_timeout": format_duration(p.visibility_timeout),
            "retry": retry_document(r),
            "on_failures": None if self.on_failures is None else self.on_failures.document(),
        }

    def plan_document(self, whole: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The part of the document that the tick reads (`parse_plan` reads it back).

        `whole`: the document, where the caller has made it.
        """
        if whole is None:
            whole = self.document()
        plan = {name: whole[name] for name in _PLAN_FIELDS}
        plan["max_attempts"] = self.retry.max_attempts
        return plan


_PLAN_FIELDS = (
    "schedule",
    "starts_at",
    "ends_at",
    "max_launches",
    "jitter",
    "calendars",
    "misfire",
    "overlap",
    "if_uncertain",
    "queue",
    "priority",
    "concurrency",
    "start_deadline",
    "visibility_timeout",
)
_ADDED = {"on_failures": None}
"""What the canonical documents of versions before this one lack, as it is taken for then."""
_ADDED_INSIDE = {"on_failures": {"expect_success_every": None}}


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A canonical document of this or an earlier version, with the members that it lacks."""
    whole = {**_ADDED, **document}
    for name, added in _ADDED_INSIDE.items():
        if isinstance(whole[name], Mapping):
            whole[name] = {**added, **whole[name]}
    return whole


def instant_text(value: datetime | None) -> str | None:
    """RFC 3339 in UTC with `Z`; fractions only where there are any."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_definition(
    doc: object,
    *,
    job: JobId,
    now: datetime,
    check_target: Callable[[Any], list[Problem]] | None = None,
) -> Definition:
    """The definition that a document of the API describes.

    Args:
        doc: the JSON document.
        job: the job's id; `H` fields of a cron expression hash it.
        now: the present instant; the default anchor of an interval.
        check_target: further checks of the target by the caller (the egress guard).

    Raises:
        InvalidInputError: with every problem, each with its JSON pointer.
    """
    reader = Reader(doc)
    if reader.problems:  # not an object: nothing inside it is missing
        reader.finish("job")
    name = reader.text("name", pattern=NAME, expected=NAME_EXPECTED)
    if name is None and not reader.problems:
        reader.problem("name", "is missing", NAME_EXPECTED)
    description = reader.text("description", "", maximum=4096) or ""
    tags = _tags(reader)
    plan = _plan(reader, job, now, stored=False)
    retry = read_retry(reader)
    target = None
    if reader.has("target"):
        target = reader.parse(lambda: parse_target(reader.raw("target"), pointer="/target"))
        if target is not None and check_target is not None:
            reader.problems.extend(check_target(target))
    else:
        reader.problem("target", "is missing", f"an object with {readable_kinds()}")
    payload = reader.raw("payload")
    _payload_problems(reader, payload)
    timeout = reader.duration(
        "timeout", timedelta(minutes=1), low=_SECOND, high=timedelta(hours=12)
    )
    on_failures = read_on_failures(reader)
    reader.finish("job")
    return Definition(
        name=name or "",
        target=target,
        plan=replace(plan, max_attempts=retry.max_attempts),
        description=description,
        tags=tags,
        payload=payload,
        timeout=timeout,
        retry=retry,
        on_failures=on_failures,
    )


def parse_plan(doc: Mapping[str, Any], *, job: JobId, now: datetime) -> Plan:
    """The plan that `plan_document` wrote.

    Raises:
        InvalidInputError: a newer or damaged document.
    """
    reader = Reader(dict(doc))
    plan = _plan(reader, job, now, stored=True)
    attempts = reader.whole("max_attempts", 5, low=1, high=1000)
    reader.finish("plan")
    return replace(plan, max_attempts=attempts)


def payload_problems(payload: object, pointer: str = "/payload") -> list[Problem]:
    """What makes a payload unusable: what text cannot hold, too deep, more than 256 KiB."""
    if least_size(payload, MAX_PAYLOAD) > MAX_PAYLOAD:
        # Neither walked through nor written: it may hold half a million values.
        return [Problem(pointer, f"has more than {MAX_PAYLOAD} bytes", f"at most {MAX_PAYLOAD}")]
    problems = list(json_problems(payload, pointer))
    if not problems and payload is not None:
        size = payload_size(payload)
        if size > MAX_PAYLOAD:
            problems.append(Problem(pointer, f"has {size} bytes", f"at most {MAX_PAYLOAD}"))
    return problems


def payload_size(payload: object) -> int:
    """Bytes of a payload that can be stored, as JSON without spaces."""
    return len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode())


def _payload_problems(reader: Reader, payload: object) -> None:
    reader.problems.extend(payload_problems(payload))


def _plan(reader: Reader, job: JobId, now: datetime, *, stored: bool) -> Plan:
    schedule = None
    if reader.has("schedule"):
        raw = reader.raw("schedule")
        # A one-off in the past is late, not wrong: the misfire policy says what becomes of it, and
        # the same definition can be applied again after it ran.
        past = stored or (isinstance(raw, dict) and "at" in raw)
        where = f"{reader.pointer}/schedule"
        schedule = reader.parse(
            lambda: parse_schedule(raw, job=job, now=now, pointer=where, stored=past)
        )
    starts_at, ends_at = reader.instant("starts_at"), reader.instant("ends_at")
    if starts_at and ends_at and ends_at <= starts_at:
        reader.problem("ends_at", "is not after starts_at", "a later instant")
    most = (
        reader.whole("max_launches", 0, low=1, high=10**12) if reader.has("max_launches") else None
    )
    deadline = (
        reader.duration("start_deadline", _DAY, low=_SECOND)
        if reader.has("start_deadline")
        else None
    )
    return Plan(
        schedule=schedule,
        starts_at=starts_at,
        ends_at=ends_at,
        max_launches=most,
        jitter=reader.duration("jitter", timedelta(0), high=_DAY),
        calendars=read_calendars(reader),
        misfire=_misfire(reader),
        overlap=reader.choice("overlap", Overlap.SKIP),
        if_uncertain=reader.choice("if_uncertain", IfUncertain.RERUN),
        queue=reader.text("queue", "default", pattern=NAME, expected=NAME_EXPECTED) or "default",
        priority=reader.choice("priority", Priority.NORMAL),
        concurrency=_concurrency(reader),
        start_deadline=deadline,
        visibility_timeout=reader.duration(
            "visibility_timeout",
            timedelta(seconds=30),
            low=timedelta(seconds=5),
            high=timedelta(hours=1),
        ),
    )


def calendars_document(use: CalendarUse) -> dict[str, Any]:
    """The canonical document of the calendars that a job names."""
    return {
        "exclude": list(use.exclude),
        "include": list(use.include),
        "on_excluded": use.on_excluded.value,
    }


def read_calendars(reader: Reader) -> CalendarUse | None:
    """The member `calendars`; problems go to the reader."""
    if not reader.has("calendars"):
        return None
    r = reader.child("calendars")
    use = CalendarUse(
        exclude=_calendar_names(r, "exclude"),
        include=_calendar_names(r, "include"),
        on_excluded=r.choice("on_excluded", OnExcluded.SKIP),
    )
    both = sorted(set(use.exclude) & set(use.include))
    if both:
        r.problem("include", f"names {both[0]!r}, which exclude names too", "one of the two")
    reader.absorb(r)
    return use if use.names else None


def _calendar_names(reader: Reader, field: str) -> tuple[str, ...]:
    if not reader.has(field):
        return ()
    raw = reader.raw(field)
    if not isinstance(raw, list):
        reader.problem(field, f"is {type_name(raw)}", "a list of calendars' names")
        return ()
    if len(raw) > MAX_CALENDARS:
        reader.problem(field, f"has {len(raw)} entries", f"at most {MAX_CALENDARS}")
        return ()
    for i, name in enumerate(raw):
        if not isinstance(name, str) or not NAME.fullmatch(name):
            where = f"{reader.pointer}/{field}/{i}"
            reader.problems.append(Problem(where, "is not a calendar's name", NAME_EXPECTED))
    return tuple(dict.fromkeys(n for n in raw if isinstance(n, str)))


def _concurrency(reader: Reader) -> Concurrency | None:
    if not reader.has("concurrency"):
        return None
    r = reader.child("concurrency")
    expected = f"a key of 1 to {MAX_KEY} characters"
    key = r.text("key", maximum=MAX_KEY, pattern=_KEY, expected=expected)
    if key is None and not r.problems:
        r.problem("key", "is missing", expected)
    value = Concurrency(key or "", r.whole("limit", 1, low=1, high=100_000))
    reader.absorb(r)
    return value


def _misfire(reader: Reader) -> Misfire:
    r = reader.child("misfire")
    value = Misfire(
        policy=r.choice("policy", MisfirePolicy.FIRE_ONCE),
        grace=r.duration("grace", timedelta(minutes=1), low=_SECOND, high=timedelta(days=30)),
        max_count=r.whole("max_count", 10, low=1, high=10_000),
        max_age=r.duration("max_age", _DAY, low=_SECOND),
        order=r.choice("order", CatchUpOrder.OLDEST),
        per_minute=r.whole("per_minute", 60, low=1, high=100_000),
    )
    reader.absorb(r)
    return value


def _tags(reader: Reader) -> dict[str, str]:
    if not reader.has("tags"):
        return {}
    raw = reader.raw("tags")
    if not isinstance(raw, dict):
        reader.problem("tags", f"is {type_name(raw)}", "an object of strings")
        return {}
    if len(raw) > MAX_TAGS:
        reader.problem("tags", f"has {len(raw)} entries", f"at most {MAX_TAGS}")
        return {}
    for key, value in raw.items():
        where = f"tags/{escape(key)}"
        if not TAG_KEY.fullmatch(key):
            reader.problems.append(
                Problem(
                    f"/{where}",
                    "is not a tag's name",
                    "1 to 63 of letters, digits, '.', '_', '/', '-'",
                )
            )
        if not isinstance(value, str):
            wrong: str | None = f"is {type_name(value)}"
        elif len(value) > _TAG_VALUE:
            wrong = f"has {len(value)} characters"
        else:
            wrong = text_problem(value)
        if wrong is not None:
            right = f"a string of at most {_TAG_VALUE} characters"
            reader.problems.append(Problem(f"/{where}", wrong, right))
    return {k: v for k, v in raw.items() if isinstance(v, str)}
