"""What an outcome makes of its launch: the verdict under the job's policy, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tickrail.core.execution import CLAIM_LOST, INTERRUPTED, Outcome, one_line
from tickrail.core.ids import ORIGIN_BACKFILL
from tickrail.core.policies import Retry
from tickrail.core.ports_worker import Claimed, Finish
from tickrail.core.retry_document import parse_retry
from tickrail.core.tasks import SNOOZED
from tickrail.core.verdict import (
    Verdict,
    give_back_verdict,
    retry_verdict,
    snooze_note,
    snooze_verdict,
    snoozed_too_often,
    success_verdict,
)


def finish_of(
    c: Claimed,
    outcome: Outcome,
    *,
    started: bool,
    retry: Mapping[str, Any] | None,
    wakes: bool,
    spread: float,
) -> Finish:
    """The end of an attempt as it is recorded.

    Args:
        c: its claim.
        outcome: how it ended.
        started: whether its executor was given the run.
        retry: the retry policy's document; None where the definition cannot be read.
        wakes: whether the end may release another launch of the job.
        spread: where in the jitter band a retry falls, 0 up to 1.
    """
    policy = Retry(max_attempts=c.max_attempts)
    o = outcome
    if not o.ok:
        # Read for failures alone: reading it takes as long as all the rest of a success.
        policy = policy if retry is None else parse_retry(retry)
        again = policy.again((o.outcome, *o.classes), usual=o.retryable)
        o = _as_snoozed(c, replace(o, retryable=again))
    return Finish(
        c.id,
        c.scheduled_at,
        c.claim,
        c.attempt,
        _verdict(c, o, policy, started=started, spread=spread),
        o.outcome,
        o.certain,
        o.code,
        o.message,
        o.body,
        _result(o),
        # The next launch of a backfill waits for this end, whatever the overlap policy.
        wakes=wakes or c.origin.startswith(ORIGIN_BACKFILL),
        limited=c.limited,
    )


def _as_snoozed(c: Claimed, o: Outcome) -> Outcome:
    """What a task that snoozes asked for, as it is done: not for ever, and it is said.

    Others are put off by the worker itself, which has bounds of its own for that.
    """
    if o.snooze is None or o.outcome != SNOOZED:
        return o
    note = snooze_note(o.snooze, attempt=c.attempt, failures=c.failures)
    if not note:
        return o
    often = snoozed_too_often(attempt=c.attempt, failures=c.failures)
    message = one_line(f"{note}; {o.message}")
    return replace(o, message=message, snooze=None if often else o.snooze)


def _verdict(c: Claimed, o: Outcome, policy: Retry, *, started: bool, spread: float) -> Verdict:
    if o.ok:
        return success_verdict(c.attempt, c.failures)
    if o.outcome in (INTERRUPTED, CLAIM_LOST):
        return give_back_verdict(
            started=started and not o.certain,
            rerun=c.rerun,
            attempt=c.attempt,
            failures=c.failures,
        )
    if o.snooze is not None:
        return snooze_verdict(o.snooze, attempt=c.attempt, failures=c.failures)
    return retry_verdict(
        retryable=o.retryable,
        certain=o.certain,
        rerun=c.rerun,
        attempt=c.attempt,
        failures=c.failures,
        retry=policy,
        spread=spread,
        retry_after=o.retry_after,
    )


def _result(o: Outcome) -> str:
    if o.ok and not (o.body or o.message or o.place) and o.code is o.value is None:
        return '{"outcome":"ok"}'
    doc: dict[str, object] = {"outcome": o.outcome, "retryable": o.retryable}
    if o.code is not None:
        doc["code"] = o.code
    if o.message:
        doc["message"] = o.message
    if o.body:
        doc["body"] = o.body
    if o.place:
        doc["place"] = dict(o.place)
    if o.value is not None:
        doc["value"] = o.value
    return json.dumps(doc).replace("\\u0000", "\\ufffd")


def reason_label(o: Outcome) -> str:
    """A bounded label for an outcome."""
    for prefix in ("http_", "exit_", "signal_", "raised_"):
        if o.outcome.startswith(prefix):
            return prefix.rstrip("_")
    return o.outcome
