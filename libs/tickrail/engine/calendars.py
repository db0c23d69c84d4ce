"""Named calendars of a tenant: put, delete, and what a change does to the jobs that use one.

Each use case runs in the caller's transaction. A change holds the calendar's row, then the rows of
the jobs that use it, by id; their next runs are computed anew before it commits, so no tick plans
a job by half of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tickrail.core.calendar_moves import Changes, Waiting, compare_slots, move_run
from tickrail.core.calendars import Calendar, parse_calendar
from tickrail.core.clock import Clock
from tickrail.core.definition import NAME, NAME_EXPECTED, Plan, parse_plan
from tickrail.core.documents import type_name
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionFailedError,
    Problem,
)
from tickrail.core.job_filter import JobState
from tickrail.core.ports_api import CalendarJob, CalendarRecord, SkippedRun, Transaction
from tickrail.core.timetable import MAX_STRETCHES, Allowance
from tickrail.engine.job_rules import ANY, Precondition, same, within_history
from tickrail.engine.jobs import merge

ANSWER_FIELDS: Final = frozenset({"version", "created_at", "updated_at", "moved"})
"""What an answer has beside the document. One that was read, edited and sent back may hold them."""
EXCLUDED: Final = "excluded"
MAX_LISTED: Final = 100
"""So many moved jobs are listed; all are counted."""
_BATCH: Final = 500
_SEARCHES: Final = 20
"""So many schedules are searched for as long as a search may take, where no run is found."""
_PATIENCE: Final = 400
"""Of the searches after those: forbidden stretches in a row (a year of nights)."""
_PATIENCE_BEFORE: Final = 100
"""Of searches by the calendar as it was: what they find is shown, and decides nothing."""
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class CalendarRules:
    """What an installation says of calendars.

    Attributes:
        history: how far back a slot may lie and still be recorded.
        read_icalendar: reads an iCalendar file into members of a calendar's document.
    """

    history: timedelta
    read_icalendar: Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A job whose slots a change moved."""

    job: CalendarJob
    before: datetime | None
    changes: Changes


@dataclass
class Moves:
    """The jobs that a change moved: how many, and the first hundred of them by id."""

    count: int = 0
    listed: list[MovedJob] = field(default_factory=list)

    def add(self, moved: MovedJob) -> None:
        """Count one."""
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(moved)


@dataclass(frozen=True, slots=True)
class CalendarChange:
    """A calendar as it was put (or would be), whether it is new, and what moves."""

    record: CalendarRecord
    created: bool = False
    moved: Moves = field(default_factory=Moves)


@dataclass(frozen=True, slots=True)
class CalendarDraft:
    """A calendar's document, read and found valid; not stored yet."""

    calendar: Calendar
    dry_run: bool = False


class Calendars:
    """The use cases of calendars."""

    def __init__(self, rules: CalendarRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def draft(self, name: str, document: object, *, dry_run: bool = False) -> CalendarDraft:
        """A calendar from a document of the API; before the transaction, it may take a while.

        A member `icalendar` holds a file whose events are added to those of the document; a member
        `dry_run` asks for an answer without a change.

        Raises:
            InvalidInputError: with every problem.
        """
        if not NAME.fullmatch(name):
            problem = Problem("/name", f"is {name[:128]!r}", NAME_EXPECTED)
            raise InvalidInputError("The calendar is not valid.", [problem])
        given = document
        imported: Sequence[Mapping[str, Any]] = ()
        if isinstance(document, dict):
            given = {k: v for k, v in document.items() if k not in ANSWER_FIELDS}
            dry_run = _flag(given.pop("dry_run", False)) or dry_run
            if "icalendar" in given:
                given, imported = self._converted(given)
        try:
            calendar = parse_calendar(given, name=name, now=self._clock.now())
        except InvalidInputError as e:
            raise InvalidInputError(e.detail, _told(e.problems, given, imported)) from None
        return CalendarDraft(calendar, dry_run)

    def put(
        self, tx: Transaction, draft: CalendarDraft, wanted: Precondition = ANY
    ) -> CalendarChange:
        """Create or replace a calendar; the same document again changes nothing.

        Raises:
            PreconditionFailedError: it is not as the caller demands.
        """
        calendar = draft.calendar
        record = tx.calendars.find(calendar.name, lock=not draft.dry_run)
        _check_version(record, wanted)
        if record is None:
            made = CalendarRecord(calendar.name, 1, calendar.document, tx.now, tx.now)
            if draft.dry_run:
                return CalendarChange(made, created=True)
            if tx.calendars.insert(made):
                tx.audit("calendar.create", _subject(made), None, calendar.document)
                return CalendarChange(made, created=True)
            # Another PUT made it meanwhile and has committed: this one comes after.
            record = tx.calendars.find(calendar.name, lock=True)
            _check_version(record, wanted)
            if record is None:
                raise ConflictError("The calendar was made and deleted meanwhile; try again.")
        if same(calendar.document, record.document):
            return CalendarChange(record)
        after = replace(
            record, version=record.version + 1, document=calendar.document, updated_at=tx.now
        )
        if not draft.dry_run:
            tx.calendars.replace(after)
            tx.audit("calendar.change", _subject(after), record.document, after.document)
        old = parse_calendar(record.document, name=record.name, version=record.version)
        new = replace(calendar, version=after.version)
        return CalendarChange(after, moved=self._move(tx, old, new, dry_run=draft.dry_run))

    def patch(
        self,
        tx: Transaction,
        name: str,
        patch: object,
        wanted: Precondition = ANY,
        *,
        dry_run: bool = False,
    ) -> tuple[CalendarChange, bool]:
        """Apply a JSON merge patch (RFC 7396) to the document; also answers if it was a dry run.

        Raises:
            NotFoundError: there is no such calendar.
            PreconditionFailedError, InvalidInputError: as above.
        """
        if not isinstance(patch, dict):
            raise InvalidInputError(
                "The patch is not valid.", [Problem("", "is not an object", "a JSON merge patch")]
            )
        require_calendar(tx, name)
        record = tx.calendars.find(name, lock=True)
        document = merge({} if record is None else record.document, patch)
        draft = self.draft(name, document, dry_run=dry_run)
        return self.put(tx, draft, wanted), draft.dry_run

    def delete(self, tx: Transaction, name: str, wanted: Precondition = ANY) -> None:
        """Delete a calendar that no live job names; one that is not there is deleted already.

        Raises:
            ConflictError: jobs name it; says which.
            PreconditionFailedError: it is not as the caller demands.
        """
        record = tx.calendars.find(name, lock=True)
        _check_version(record, wanted)
        if record is None:
            return
        users = tx.calendars.jobs_using(name, None, _NAMED + 1)
        if users:
            more = " and more" if len(users) > _NAMED else ""
            names = ", ".join(job.name for job in users[:_NAMED])
            raise ConflictError(
                f"The calendar is used by {names}{more}.",
                [
                    Problem("", f"the job {job.name!r} names it", "a job without this calendar")
                    for job in users[:_NAMED]
                ],
            )
        tx.calendars.delete(name)
        tx.audit("calendar.delete", _subject(record), record.document, None)

    def _converted(
        self, document: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
        """The document with the events of its iCalendar file."""
        found = {k: v for k, v in document.items() if k != "icalendar"}
        text = document["icalendar"]
        if text is None:
            return found, ()
        if not isinstance(text, str):
            problem = Problem(
                "/icalendar", f"is {type_name(text)}", "the text of an iCalendar file"
            )
            raise InvalidInputError("The calendar is not valid.", [problem])
        read = dict(self._rules.read_icalendar(text))
        imported: list[Mapping[str, Any]] = read.pop("events")
        own = found.get("events") or []
        if not isinstance(own, list):
            return found, ()
        return {**read, **found, "events": [*own, *imported]}, imported

    def _move(self, tx: Transaction, old: Calendar, new: Calendar, *, dry_run: bool) -> Moves:
        """Compute the next runs of the jobs that use the calendar anew."""
        moves = Moves()
        mover = _Mover(tx, old, new)
        for batch in _batches(tx, new.name, lock=not dry_run):
            written: list[CalendarJob] = []
            for job in batch:
                found = mover.move(job)
                if found is None:
                    continue
                after, changes, skips = found
                if changes.added or changes.removed or after.next_run_at != job.next_run_at:
                    moves.add(MovedJob(after, job.next_run_at, changes))
                if after != job and not dry_run:
                    written.append(after)
                    kept = within_history(skips, EXCLUDED, tx.now, self._rules.history)
                    tx.jobs.insert_skips(job.id, kept)
            tx.calendars.move(written)
        if moves.count and not dry_run:
            tx.wake_schedulers()
        return moves


class _Mover:
    """Moves jobs from one version of a calendar to the next; what many share is worked out once."""

    def __init__(self, tx: Transaction, old: Calendar, new: Calendar) -> None:
        self._tx = tx
        self._old = old
        self._new = new
        self._others: dict[str, Calendar | None] = {}
        self._changes: dict[str, tuple[Changes, bool]] = {}
        self._in_vain = 0

    def move(self, job: CalendarJob) -> tuple[CalendarJob, Changes, list[SkippedRun]] | None:
        """The job as it goes on, how its slots change, and what was left out until now.

        None: it cannot be planned (a calendar of it is missing, or its plan is a newer version's);
        its next tick says so.
        """
        try:
            plan = parse_plan(job.plan, job=job.id, now=self._tx.now)
            patience = MAX_STRETCHES if self._in_vain < _SEARCHES else _PATIENCE
            before = self._with(plan, self._old, _PATIENCE_BEFORE)
            after = self._with(plan, self._new, patience)
        except (InvalidInputError, NotFoundError):
            return None
        changes, sure = self._compare(job, before, after)
        if job.awaits:
            return job, changes, []
        here = Waiting(job.id, job.next_run_at, job.last_slot_at, job.launched)
        moved = move_run(before, after, here, self._tx.now, changes)
        skips: list[SkippedRun] = []
        if moved.left_out is not None:
            left = moved.left_out
            skips = [SkippedRun(EXCLUDED, left.first, left.last, left.count)]
        if moved.next_run_at is None and not sure:
            # There may be thousands such jobs: it waits as it did, and its tick searches further.
            return replace(job, last_slot_at=moved.last_slot), changes, skips
        state = job.state
        if plan.schedule is not None and moved.next_run_at is None:
            state = JobState.FINISHED
        elif state is JobState.FINISHED and moved.next_run_at is not None:
            # It was finished because its calendars left no run; now there is one.
            state = JobState.PAUSED if job.paused else JobState.ACTIVE
        gone_on = replace(
            job, state=state, next_run_at=moved.next_run_at, last_slot_at=moved.last_slot
        )
        return gone_on, changes, skips

    def _compare(self, job: CalendarJob, before: Plan, after: Plan) -> tuple[Changes, bool]:
        """How the slots change, and whether the search for them was a whole one."""
        timing = [job.plan.get(n) for n in ("schedule", "starts_at", "ends_at", "calendars")]
        key = json.dumps(timing, sort_keys=True)
        if "H" in key:  # a hash of the job's id may be in it
            key += str(job.id)
        found = self._changes.get(key)
        if found is None:
            sure = self._in_vain < _SEARCHES
            found = compare_slots(before, after, self._tx.now), sure
            self._changes[key] = found
            self._in_vain += found[0].first is None
        return found

    def _with(self, plan: Plan, changed: Calendar, patience: int) -> Plan:
        use = plan.calendars
        if use is None:
            return plan

        def named(names: Sequence[str]) -> tuple[Calendar, ...]:
            return tuple(changed if n == changed.name else self._other(n) for n in names)

        exclude, include = named(use.exclude), named(use.include)
        allowance = Allowance(exclude, include, use.on_excluded, patience)
        return replace(plan, allowance=allowance)

    def _other(self, name: str) -> Calendar:
        if name not in self._others:
            self._others[name] = self._tx.calendars.load([name]).get(name)
        found = self._others[name]
        if found is None:
            raise NotFoundError(f"There is no calendar {name!r}.")
        return found


def require_calendar(tx: Transaction, name: str) -> CalendarRecord:
    """The calendar.

    Raises:
        NotFoundError: this tenant has no such calendar.
    """
    record = tx.calendars.find(name) if NAME.fullmatch(name) else None
    if record is None:
        raise NotFoundError(f"There is no calendar of the name {name[:128]!r}.")
    return record


def _batches(tx: Transaction, name: str, *, lock: bool) -> Iterator[Sequence[CalendarJob]]:
    after = None
    while batch := tx.calendars.jobs_using(name, after, _BATCH, lock=lock):
        yield batch
        after = batch[-1].id


def _check_version(record: CalendarRecord | None, wanted: Precondition) -> None:
    """Hold a precondition against the calendar as it is.

    Raises:
        PreconditionFailedError: it does not hold.
    """
    if wanted.exists is False and record is not None:
        raise PreconditionFailedError(
            f"The calendar is there already, at version {record.version}."
        )
    if wanted.exists and record is None:
        raise PreconditionFailedError("There is no such calendar.")
    if record is None or wanted.versions is None or record.version in wanted.versions:
        return
    newest = max(wanted.versions, default=0)
    raise PreconditionFailedError(
        f"The calendar is at version {record.version}, not {newest}: read it again."
    )


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    problem = Problem("/dry_run", f"is {type_name(value)}", "true or false")
    raise InvalidInputError("The calendar is not valid.", [problem])


def _told(
    problems: Sequence[Problem], document: object, imported: Sequence[Mapping[str, Any]]
) -> list[Problem]:
    """The problems, those of imported events told by the events' names."""
    events = document.get("events") if isinstance(document, dict) else None
    first = (len(events) if isinstance(events, list) else 0) - len(imported)
    found = []
    for p in problems:
        place = p.pointer.split("/")
        known = len(place) > 2 and place[1] == "events" and place[2].isdigit()  # noqa: PLR2004 - /events/0
        if imported and known and int(place[2]) >= first:
            event = imported[int(place[2]) - first]
            name = str(event.get("summary") or event.get("start"))[:80]
            what = f"the event {name!r}: {'/'.join(place[3:])} {p.message}"
            found.append(Problem("/icalendar", what, p.expected))
        else:
            found.append(p)
    return found


def _subject(record: CalendarRecord) -> str:
    return f"calendar:{record.name}"
