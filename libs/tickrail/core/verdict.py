"""What the end of an attempt does to its launch.

Pure; the stores apply it unless a cancel was asked for, which they read in the same update.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from tickrail.core.policies import Retry
from tickrail.core.states import State

LEAST_SNOOZE = timedelta(seconds=1)
"""A run that asks for less would be started again and again."""
LONGEST_SNOOZE = timedelta(days=30)
"""As the cap of a backoff at most is."""
MOST_SNOOZES = 1000
"""So many attempts of a launch may end as no failure; a snooze after that is one."""


class Verdict(NamedTuple):
    """How an attempt's end changes its launch, unless a cancel was asked for."""

    state: State
    attempt: int
    failures: int
    delay: timedelta
    dlq_owed: bool


def retry_verdict(
    *,
    retryable: bool,
    certain: bool,
    rerun: bool,
    attempt: int,
    failures: int,
    retry: Retry,
    spread: float,
    retry_after: float | None = None,
) -> Verdict:
    """What a failure does to its launch (docs/protocols.md 4.5).

    An uncertain end of a launch whose owner holds a doubled run for worse is never run again by
    itself: it is abandoned. Otherwise it is tried again until `retry.max_attempts` failures.

    Args:
        retryable: whether trying the same again can help.
        certain: whether it is known that the effect did not happen.
        rerun: what the owner chose: a missing run is worse.
        attempt: the attempt that ended.
        failures: failures before this one.
        retry: the policy.
        spread: where in the jitter band, 0 up to 1.
        retry_after: seconds that the target asked for.
    """
    zero = timedelta(0)
    if not certain and not rerun:
        return Verdict(State.ABANDONED, attempt, failures + 1, zero, dlq_owed=True)
    if retryable and failures + 1 < retry.max_attempts:
        delay = retry.delay(failures + 1, spread, retry_after)
        return Verdict(State.DUE, attempt + 1, failures + 1, delay, dlq_owed=False)
    return Verdict(State.DEAD, attempt, failures + 1, zero, dlq_owed=True)


def success_verdict(attempt: int, failures: int) -> Verdict:
    """The verdict of a success."""
    return Verdict(State.SUCCEEDED, attempt, failures, timedelta(0), dlq_owed=False)


def snooze_verdict(seconds: float, *, attempt: int, failures: int) -> Verdict:
    """What a run that wants to be tried again later does: no failure, and no attempt less.

    Args:
        seconds: from now; at least `LEAST_SNOOZE`, at most `LONGEST_SNOOZE`.
        attempt: the attempt that ended.
        failures: failures before this one.
    """
    least, most = LEAST_SNOOZE.total_seconds(), LONGEST_SNOOZE.total_seconds()
    delay = timedelta(seconds=max(least, min(seconds, most)))
    return Verdict(State.DUE, attempt + 1, failures, delay, dlq_owed=False)


def snoozed_too_often(*, attempt: int, failures: int) -> bool:
    """Whether a snooze of this attempt counts as a failure, so that a launch ends at some time.

    Args:
        attempt: the one that ended.
        failures: failures before it.
    """
    return attempt - failures > MOST_SNOOZES


def snooze_note(seconds: float, *, attempt: int, failures: int) -> str:
    """What is done otherwise than a run asked for that snoozes, in words; empty: nothing."""
    if snoozed_too_often(attempt=attempt, failures=failures):
        return f"a failure: {MOST_SNOOZES} attempts have ended as none"
    if seconds > LONGEST_SNOOZE.total_seconds():
        return f"tried again after {LONGEST_SNOOZE.days} days, the longest"
    if seconds < LEAST_SNOOZE.total_seconds():
        return f"tried again after {LEAST_SNOOZE.seconds} s, the least"
    return ""


def give_back_verdict(*, started: bool, rerun: bool, attempt: int, failures: int) -> Verdict:
    """What a worker that stops does with a run it did not finish.

    A run that had started and whose owner holds a doubled run for worse is abandoned; any other is
    due again at once under the next attempt number, its failures unchanged.
    """
    if started and not rerun:
        return Verdict(State.ABANDONED, attempt, failures, timedelta(0), dlq_owed=True)
    return Verdict(State.DUE, attempt + 1, failures, timedelta(0), dlq_owed=False)
