"""Rows as the documents of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson

from tickrail.core.definition import Plan, completed, instant_text, parse_plan
from tickrail.core.errors import TickrailError
from tickrail.core.explain import Explanation
from tickrail.core.ids import JobId
from tickrail.core.lint import LintWarning
from tickrail.core.policies import PRIORITIES
from tickrail.core.ports_api import AttemptRecord, JobRecord
from tickrail.core.records import LaunchRecord
from tickrail.core.schedule import Slot
from tickrail.core.states import State, shown
from tickrail.core.words import plan_words
from tickrail.engine.ledger import Kind, SlotRow
from tickrail.engine.run_logs import RunLog
from tickrail_api.schemas.job import JobDocument, Misfire, Retry

# Asked for each job of a list: the model itself takes far longer to tell.
_JOB_FIELDS = tuple(JobDocument.model_fields)
_INNER_FIELDS = {"misfire": tuple(Misfire.model_fields), "retry": tuple(Retry.model_fields)}
_KNOWN_WORDS = 4096
"""Plans whose words are known: reading one takes longer than all else that a job's row needs."""
_NO_RESULT = {"outcome": None, "code": None, "message": "", "body": ""}
_KINDS = {Kind.LAUNCHED: "launched", Kind.SKIPPED: "skipped", Kind.UPCOMING: "upcoming"}


def job_document(job: JobRecord, plan: Plan | None = None) -> dict[str, Any]:
    """A job; `plan`: its plan, where the caller has read it."""
    return {
        "id": str(job.id),
        **ordered(job.definition),
        "version": job.version,
        "state": job.state.value,
        "paused": job.paused,
        "next_run_at": instant_text(job.next_run_at),
        "last_launch": None if job.last_launch is None else launch_document(job.last_launch),
        "partition": job.partition,
        "schedule_words": _words(job) if plan is None else plan_words(plan),
        "skip_next": job.skip_next,
        "error": job.error,
        "silent_since": instant_text(job.silent_since),
        "created_at": instant_text(job.created_at),
        "updated_at": instant_text(job.updated_at),
    }


def job_answer(
    job: JobRecord, hints: Iterable[LintWarning], plan: Plan | None = None
) -> dict[str, Any]:
    """One job with what is probably not meant in it."""
    return {**job_document(job, plan), "lint": [lint_document(w) for w in hints]}


def lint_document(warning: LintWarning) -> dict[str, str]:
    """A warning."""
    return {"code": warning.code, "message": warning.message, "pointer": warning.pointer}


def ordered(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition in the order of its documentation: the database keeps no order of fields."""
    whole = _in_order(_JOB_FIELDS, completed(definition))
    for name, fields in _INNER_FIELDS.items():
        whole[name] = _in_order(fields, definition[name])
    return whole


def _in_order(fields: Iterable[str], found: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: found[name] for name in fields if name in found}
    return known if len(known) == len(found) else {**known, **found}


def launch_document(launch: LaunchRecord) -> dict[str, Any]:
    """A launch."""
    again = launch.state is State.DUE and launch.attempt > 1  # after a failure or a snooze
    return {
        "id": str(launch.id),
        "job": {"id": str(launch.job), "name": launch.job_name, "version": launch.job_version},
        "origin": launch.origin.partition(":")[0],
        "scheduled_at": instant_text(launch.scheduled_at),
        "due_at": instant_text(launch.due_at),
        "state": shown(launch.state, launch.failures),
        "attempt": launch.attempt,
        "failures": launch.failures,
        "max_attempts": launch.max_attempts,
        "queue": launch.queue,
        "priority": PRIORITIES[launch.priority].value,
        "worker": launch.worker,
        "claim": launch.claim,
        "cancel_requested": launch.cancel_requested,
        "created_at": instant_text(launch.created_at),
        "queued_at": instant_text(launch.queued_at),
        "started_at": instant_text(launch.started_at),
        "finished_at": instant_text(launch.finished_at),
        "next_attempt_at": instant_text(launch.due_at) if again else None,
        "result": None if launch.result is None else {**_NO_RESULT, **launch.result},
        "redrive_count": launch.redrive_count,
        "progress": launch.progress,
    }


def attempt_document(attempt: AttemptRecord) -> dict[str, Any]:
    """An attempt."""
    return {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "certain": attempt.certain,
        "code": attempt.code,
        "message": attempt.message,
        "body": attempt.body,
        "worker": attempt.worker,
        "claim": attempt.claim,
        "started_at": instant_text(attempt.started_at),
        "finished_at": instant_text(attempt.finished_at),
        "stale_result": attempt.stale_result and _stale_document(attempt.stale_result),
    }


def _stale_document(stale: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "outcome": stale["outcome"],
        "code": stale.get("code"),
        "message": stale["message"],
        "body": stale["body"],
        "at": instant_text(datetime.fromisoformat(stale["at"])),
    }


def explanation_document(launch: LaunchRecord, found: Explanation) -> dict[str, Any]:
    """Where a launch stands."""
    ended = found.ended
    return {
        "launch": str(launch.id),
        "state": shown(launch.state, launch.failures),
        "holds": found.holds,
        "checks": [
            {"check": name, "ok": c.ok, "detail": c.detail, "until": instant_text(c.until)}
            for name, c in found.checks.items()
        ],
        "ended": None
        if ended is None
        else {
            "reason": ended.reason,
            "outcome": ended.outcome,
            "attempts": ended.attempts,
            "detail": ended.detail,
            "at": instant_text(ended.at),
        },
    }


def log_document(log: RunLog) -> dict[str, Any]:
    """What an attempt printed."""
    return {
        "attempt": log.attempt,
        "body": log.body,
        "size": log.size,
        "truncated": log.truncated,
        "updated_at": instant_text(log.updated_at),
        "live": log.live,
    }


def ledger_document(row: SlotRow) -> dict[str, Any]:
    """A row of the ledger. `count` above 1: a run of slots up to `last_at`."""
    return {
        "at": instant_text(row.at),
        "state": _KINDS[row.kind],
        "launch": None if row.launch is None else launch_document(row.launch),
        "reason": row.reason,
        "count": row.count,
        "last_at": instant_text(row.last_at if row.last_at is not None else row.at),
    }


def slot_document(slot: Slot) -> dict[str, Any]:
    """A slot to come."""
    return {"at": instant_text(slot.at), "local": slot.local, "notes": list(slot.notes)}


def named_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the installation, instants as text."""
    return {k: instant_text(v) if k.endswith("_at") else v for k, v in row.items()}


def etag(job: JobRecord) -> dict[str, str]:
    """The ETag of a job: its definition's version."""
    return {"ETag": f'"{job.version}"'}


def _words(job: JobRecord) -> str | None:
    """The schedule in words; None where this version cannot read it."""
    return _words_of(job.id, orjson.dumps(job.plan), job.defined_at)


@lru_cache(maxsize=_KNOWN_WORDS)
def _words_of(job: JobId, plan: bytes, defined_at: datetime) -> str | None:
    try:
        return plan_words(parse_plan(orjson.loads(plan), job=job, now=defined_at))
    except TickrailError:
        return None
