"""Jobs as their owners change them: create, replace, patch, delete.

Each use case runs in the caller's transaction, which belongs to one tenant and comes first. A
change locks the job's row, so it falls before or after a tick of that job, never inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from tickrail.core.calendar_moves import undecided
from tickrail.core.clock import Clock
from tickrail.core.definition import Definition, Plan, completed, parse_definition
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NameTakenError,
    Problem,
)
from tickrail.core.ids import JobId, uuid7
from tickrail.core.job_filter import JobState
from tickrail.core.plan import first_due, plan_resume
from tickrail.core.ports_api import JobRecord, JobRef, SkippedRun, Transaction
from tickrail.core.schedule import AnyOf, At, Schedule
from tickrail.core.schedule_document import FORMS
from tickrail.core.sharding import partition_of
from tickrail.core.timetable import SEARCH_YEARS
from tickrail.engine.job_checks import check_surroundings, name_taken
from tickrail.engine.job_rules import (
    ANY,
    PAUSED,
    SKIPPED_BY_HAND,
    JobRules,
    Precondition,
    TargetCheck,
    check_version,
    pause_note,
    plan_of,
    require,
    resolve,
    same,
    situation,
    within_history,
)
from tickrail.engine.quotas import admit_job, check_definition, check_payload, note_job

ANSWER_FIELDS = frozenset(
    {
        "id", "version", "state", "next_run_at", "last_launch", "partition", "created_at",
        "updated_at", "schedule_words", "skip_next", "error", "silent_since", "lint",
    }
)  # fmt: skip
"""What an answer has beside the definition. A document read, edited and sent back may hold them."""

_PLACE: Final = ("time_zone", "gap", "fold")
_TIMING = ("schedule", "starts_at", "ends_at", "jitter", "max_launches", "calendars")
_TICK = timedelta(microseconds=1)
_SOON = timedelta(seconds=5)
"""Owners look for what is due once a second. A first run that is further off than this, the skew of
clocks included, wakes nobody: PostgreSQL commits what notifies one after the other."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A new job, validated, not stored yet."""

    id: JobId
    definition: Definition
    at: datetime
    paused: bool = False


class Jobs:
    """The use cases of jobs."""

    def __init__(self, rules: JobRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def draft(
        self,
        document: object,
        egress: Mapping[str, Any] | None = None,
        check: TargetCheck | None = None,
    ) -> Draft:
        """A new job from a document of the API; before the transaction, since it may take a while.

        `"paused": true` in the document starts the job paused. `egress`: the tenant's lists.
        `check`: the check of targets, where many jobs share one (`batch_check`).

        Raises:
            InvalidInputError: with every problem.
        """
        now = self._clock.now()
        job = JobId(uuid7(self._clock))
        document, paused = _split_paused(document)
        one = self._rules.check_target
        if check is None and one is not None:
            check = partial(_checked, one, egress)
        definition = parse_definition(document, job=job, now=now, check_target=check)
        return Draft(job, definition, now, paused)

    def batch_check(self, egress: Mapping[str, Any] | None) -> TargetCheck | None:
        """A check of the targets of one request, under the tenant's lists."""
        many = self._rules.check_targets
        return None if many is None else many(egress)

    def create(self, tx: Transaction, draft: Draft) -> JobRecord:
        """Store a new job.

        Raises:
            NameTakenError: a live job has the name.
            InvalidInputError: its queue does not serve it, it would never be due, or a quota does
                not allow it.
            QuotaExceededError: the tenant has as many jobs as it may have.
        """
        definition = draft.definition
        check_surroundings(tx, definition, self._rules.topic_prefix)
        plan = resolve(tx, definition.plan, lock=True)
        next_run_at = self._first_run(plan, draft.id, tx.now)
        check_definition(tx, definition, plan)
        admit_job(tx)
        document = definition.document()
        job = JobRecord(
            id=draft.id,
            name=definition.name,
            partition=partition_of(draft.id, self._rules.partitions),
            version=1,
            state=JobState.PAUSED if draft.paused else JobState.ACTIVE,
            next_run_at=next_run_at,
            last_slot_at=None if plan.allowance is None else tx.now,
            launched=0,
            plan=definition.plan_document(document),
            definition=document,
            defined_at=draft.at,
            paused=pause_note(tx, None, "created paused") if draft.paused else None,
            error=None,
            created_at=tx.now,
            updated_at=tx.now,
        )
        if not tx.jobs.insert(job, definition, tx.actor):
            raise name_taken(job.name)
        note_job(tx)
        if plan.calendars is not None:
            tx.calendars.use(job.id, plan.calendars.names)
        tx.audit("job.create", f"job:{job.id}", None, job.definition)
        if next_run_at is not None and next_run_at < tx.now + _SOON:
            tx.wake_schedulers()
        return job

    def put(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> tuple[JobRecord, bool]:
        """Create or replace the job of a name, or replace that of an id; whether it is new.

        Raises:
            NotFoundError: there is no job with the id.
            PreconditionFailedError, NameTakenError, InvalidInputError: as for the others.
        """
        if isinstance(document, dict):
            document = {k: v for k, v in document.items() if k not in ANSWER_FIELDS}
            if isinstance(ref, str):
                document.setdefault("name", ref)
                if document["name"] != ref:
                    raise InvalidInputError(
                        "The job is not valid.",
                        [Problem("/name", "is not the name in the path", repr(ref))],
                    )
        job = tx.jobs.find(ref, lock=True)
        check_version(tx, job, wanted)
        if job is None:
            if not isinstance(ref, str):
                require(tx, ref)
            draft = self.draft(document, tx.egress())
            try:
                return self.create(tx, draft), True
            except NameTakenError:
                # Another PUT made it meanwhile and has committed: this one comes after.
                job = tx.jobs.find(ref, lock=True)
                if job is None:
                    raise
                check_version(tx, job, wanted)
        # `paused` of a document says how a job begins; a job that is there keeps its state.
        document, _ = _split_paused(document)
        return self.change(tx, job, document), False

    def patch(
        self, tx: Transaction, ref: JobRef, patch: object, wanted: Precondition = ANY
    ) -> JobRecord:
        """Apply a JSON merge patch (RFC 7396) to the canonical document.

        A schedule whose form the patch changes (`every` in place of `cron`) loses what belongs to
        the form that it had.

        Raises:
            NotFoundError, PreconditionFailedError, NameTakenError, InvalidInputError: as above.
        """
        if not isinstance(patch, dict):
            raise InvalidInputError(
                "The patch is not valid.", [Problem("", "is not an object", "a JSON merge patch")]
            )
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        return self.change(tx, job, merge(_reformed(job.definition, patch), patch))

    def change(
        self, tx: Transaction, job: JobRecord, document: object, action: str = "job.change"
    ) -> JobRecord:
        """Give a job whose row is held another document; the same one changes nothing.

        Raises:
            ConflictError, NameTakenError, InvalidInputError: as above.
        """
        if job.state is JobState.DELETED:
            raise ConflictError("The job is deleted; it can be read, not changed.")
        definition = self.parse_over(job, document, tx.now)
        new = definition.document()
        before = completed(job.definition)
        if same(new, before):
            return job
        changed = [name for name, value in new.items() if not same(value, before[name])]
        if "target" in changed and self._rules.check_target is not None:
            problems = self._rules.check_target(definition.target, tx.egress())
            if problems:
                raise InvalidInputError("The job is not valid.", problems)
        if not {"target", "queue", "on_failures"}.isdisjoint(changed):
            check_surroundings(tx, definition, self._rules.topic_prefix)
        after = replace(
            job,
            name=definition.name,
            version=job.version + 1,
            plan=definition.plan_document(new),
            definition=new,
            defined_at=tx.now,
            error=None,
            updated_at=tx.now,
        )
        if any(name in changed for name in _TIMING):
            plan = resolve(tx, definition.plan, lock=True)
            check_definition(tx, definition, plan)
            after = self._retime(tx, after, job, plan)
            if "calendars" in changed:
                tx.calendars.use(job.id, () if plan.calendars is None else plan.calendars.names)
        elif "payload" in changed:
            check_payload(tx, definition.payload)
        tx.jobs.replace(after, definition, tx.actor)
        tx.audit(action, f"job:{job.id}", job.definition, new)
        tx.wake_schedulers()
        return after

    def _retime(self, tx: Transaction, job: JobRecord, before: JobRecord, plan: Plan) -> JobRecord:
        """Where the job goes on under its new schedule: after its last slot and this edit.

        Slots that were due under the old schedule and not launched are recorded as skipped.
        """
        skips, last_slot = self._passed(tx, before)
        if plan.allowance is not None:
            last_slot = max(last_slot or tx.now, tx.now)
        # The slots of a pause that were to be caught up are those of the old schedule: dealt with.
        job = replace(job, awaits=False, catch_up=None)
        why = PAUSED if before.state is JobState.PAUSED else SKIPPED_BY_HAND
        tx.jobs.insert_skips(job.id, within_history(skips, why, tx.now, self._rules.history))
        state: JobState = before.state if before.state is JobState.PAUSED else JobState.ACTIVE
        if plan.max_launches is not None and job.launched >= plan.max_launches:
            return replace(job, state=JobState.FINISHED, next_run_at=None, last_slot_at=last_slot)
        if same(before.definition["schedule"], job.definition["schedule"]):
            after = undecided(plan, max(last_slot or tx.now, tx.now))
            next_run_at = first_due(plan, job.id, after)
            if next_run_at is None and plan.schedule is not None:
                state = JobState.FINISHED
        else:
            next_run_at = self._first_run(plan, job.id, tx.now, last_slot)
        return replace(job, state=state, next_run_at=next_run_at, last_slot_at=last_slot)

    def _first_run(
        self, plan: Plan, job: JobId, now: datetime, last_slot: datetime | None = None
    ) -> datetime | None:
        """The first run of a new schedule: after now, or a one-off's instant in the past.

        Where the clock was set back, the slots up to the last one are decided on already.
        """
        if plan.schedule is None:
            return None
        after, once = undecided(plan, max(now, last_slot or now)), _one_off(plan.schedule)
        if once is not None and once <= now:
            oldest = now - self._rules.history
            if once < oldest:
                raise _never("/schedule/at", "is older than the history", f"after {oldest:%F}")
            after = once - _TICK
        due = first_due(plan, job, after)
        if due is None:
            place = "/schedule" if plan.ends_at is None else "/ends_at"
            if plan.allowance is not None:
                what = f"has no run within {SEARCH_YEARS} years under its calendars"
                raise _never(place, what, "a time that the calendars allow")
            raise _never(place, "leaves no run to come", "a time that is to come")
        return due

    def parse_over(self, job: JobRecord, document: object, now: datetime) -> Definition:
        """The definition of a document that takes the place of the job's.

        What an interval is measured from, where the document does not say, is the moment at which
        it was first accepted: the same document again must not move it.

        Raises:
            InvalidInputError: with every problem.
        """
        first: Definition | None = None
        failure: InvalidInputError | None = None
        for base in (now, *_anchors(job.definition["schedule"]), job.defined_at):
            try:
                found = parse_definition(document, job=job.id, now=base)
            except InvalidInputError as e:
                failure = failure or e
                continue
            if same(found.document()["schedule"], job.definition["schedule"]):
                return found
            if base is now:
                first = found
        if first is None:
            raise failure or InvalidInputError("The job is not valid.")
        return first

    def delete(self, tx: Transaction, ref: JobRef, wanted: Precondition = ANY) -> None:
        """Delete a job: its name is free, open launches that do not run yet are cancelled.

        Deleting it again changes nothing.

        Raises:
            NotFoundError, PreconditionFailedError: as above.
        """
        job = tx.jobs.find(ref, lock=True)
        if job is None and isinstance(ref, str):
            job = tx.jobs.find_deleted(ref)
        if job is None:
            job = require(tx, ref)
        if job.state is JobState.DELETED:
            return
        check_version(tx, job, wanted)
        # The pause stays noted, for a job that is had back.
        tx.jobs.move(replace(job, state=JobState.DELETED, next_run_at=None))
        tx.launches.cancel_open([job.id], running=False)
        tx.audit("job.delete", f"job:{job.id}", job.definition, None)
        tx.wake_schedulers()

    def _passed(
        self, tx: Transaction, job: JobRecord
    ) -> tuple[Sequence[SkippedRun], datetime | None]:
        """Slots of a job that are due and not decided on, and its last slot with them."""
        live = job.state in (JobState.ACTIVE, JobState.PAUSED)
        if not live or job.next_run_at is None:
            return [], job.last_slot_at
        decision = plan_resume(plan_of(tx, job), situation(job), tx.now)
        found = [SkippedRun(s.reason.value, s.first, s.last, s.count) for s in decision.skipped]
        return found, decision.last_slot


def _checked(
    check: Callable[[Any, Mapping[str, Any] | None], list[Problem]],
    egress: Mapping[str, Any] | None,
    target: object,
) -> list[Problem]:
    return check(target, egress)


def _reformed(document: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document without the members of a form of schedule that a patch replaces by another."""
    before, after = document.get("schedule"), patch.get("schedule")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return document
    given = [form for form in FORMS if after.get(form) is not None]
    if len(given) != 1 or before.get(given[0]) is not None:
        return document
    keeps = given[0] in ("cron", "calendar") or (given[0] == "at" and _is_local(after["at"]))
    kept = {name: before[name] for name in _PLACE if keeps and name in before}
    return {**document, "schedule": kept}


def _is_local(text: object) -> bool:
    """Whether a one-off's time is a local one, with a zone beside it."""
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def merge(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396) applied: null removes, objects merge, the rest replaces."""
    result = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            before = result.get(name)
            result[name] = merge(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = value
    return result


def _split_paused(document: object) -> tuple[object, bool]:
    """The document without `paused`, and whether it said true."""
    if not isinstance(document, dict) or "paused" not in document:
        return document, False
    paused = document["paused"]
    if paused is not None and not isinstance(paused, bool | dict):
        raise InvalidInputError(
            "The job is not valid.",
            [Problem("/paused", "is not a boolean", "true or false, read when the job is created")],
        )
    return {k: v for k, v in document.items() if k != "paused"}, bool(paused)


def _one_off(schedule: Schedule) -> datetime | None:
    """The instant of a schedule that is due once (or at both passes of a local time)."""
    if isinstance(schedule, At):
        return schedule.instant
    if isinstance(schedule, AnyOf) and all(isinstance(p, At) for p in schedule.parts):
        return min(p.instant for p in schedule.parts if isinstance(p, At))
    return None


def _never(pointer: str, message: str, expected: str) -> InvalidInputError:
    return InvalidInputError("The job is not valid.", [Problem(pointer, message, expected)])


def _anchors(schedule: Any) -> list[datetime]:  # noqa: ANN401 - a canonical schedule document
    """Instants whose defaults are the anchors of a canonical schedule's intervals."""
    if not isinstance(schedule, dict):
        return []
    found = [a for part in schedule.get("any_of", ()) for a in _anchors(part)]
    if isinstance(schedule.get("anchor"), str):
        found.append(datetime.fromisoformat(schedule["anchor"]))
    calendar = schedule.get("calendar")
    if isinstance(calendar, dict) and isinstance(calendar.get("anchor"), str):
        # A local day: in every zone, one of these two instants falls on it.
        day = datetime.fromisoformat(calendar["anchor"]).replace(tzinfo=UTC)
        found += [day + timedelta(hours=6), day + timedelta(hours=12)]
    return found
