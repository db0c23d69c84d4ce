"""What the end of an attempt does to its launch, and in which delay."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

import pytest

from tickrail.core.fairness import FairQueue
from tickrail.core.policies import Retry
from tickrail.core.retry_document import parse_retry
from tickrail.core.states import MOVES, OPEN, PHASE, TERMINAL, Actor, State, allowed, shown
from tickrail.core.verdict import (
    give_back_verdict,
    retry_verdict,
    snooze_verdict,
    success_verdict,
)

RETRY = Retry(max_attempts=3, jitter=0)


@pytest.mark.parametrize(
    ("retryable", "certain", "rerun", "failures", "state", "attempt", "owed"),
    [
        pytest.param(True, True, True, 0, State.DUE, 2, False, id="first failure is tried again"),
        pytest.param(True, True, True, 2, State.DEAD, 1, True, id="the last failure is dead"),
        pytest.param(False, True, True, 0, State.DEAD, 1, True, id="not retryable is dead at once"),
        pytest.param(True, False, True, 0, State.DUE, 2, False, id="uncertain, rerun"),
        pytest.param(True, False, False, 0, State.ABANDONED, 1, True, id="uncertain, skip"),
        pytest.param(True, True, False, 0, State.DUE, 2, False, id="certain, skip"),
    ],
)
def test_failure(
    retryable: bool,
    certain: bool,
    rerun: bool,
    failures: int,
    state: State,
    attempt: int,
    owed: bool,
) -> None:
    verdict = retry_verdict(
        retryable=retryable,
        certain=certain,
        rerun=rerun,
        attempt=1,
        failures=failures,
        retry=RETRY,
        spread=0.5,
    )
    assert (verdict.state, verdict.attempt, verdict.dlq_owed) == (state, attempt, owed)
    assert verdict.failures == failures + 1
    assert (State.RUNNING, verdict.state) in MOVES


@pytest.mark.parametrize(
    ("asked", "delay"),
    [(90.0, 90.0), (1.5, 1.5), (0.0, 1.0), (-5.0, 1.0), (1e300, 30 * 86400.0)],
)
def test_a_snooze_is_no_failure(asked: float, delay: float) -> None:
    later = snooze_verdict(asked, attempt=3, failures=2)
    assert (later.state, later.attempt, later.failures) == (State.DUE, 4, 2)
    assert later.delay.total_seconds() == delay
    assert not later.dlq_owed


def test_success_and_given_back() -> None:
    assert success_verdict(2, 1).state is State.SUCCEEDED
    back = give_back_verdict(started=True, rerun=True, attempt=2, failures=1)
    assert (back.state, back.attempt, back.failures) == (State.DUE, 3, 1)
    assert (
        give_back_verdict(started=True, rerun=False, attempt=1, failures=0).state is State.ABANDONED
    )
    assert give_back_verdict(started=False, rerun=False, attempt=1, failures=0).state is State.DUE


def test_d13_delays_are_1_2_4_8_and_capped() -> None:
    retry = Retry(initial=timedelta(seconds=1), maximum=timedelta(seconds=60), jitter=0)
    delays = [retry.delay(n, 0.5).total_seconds() for n in range(1, 9)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    assert list(accumulate(delays)) == [1, 3, 7, 15, 31, 63, 123, 183]
    assert retry.delay(5000, 0.5).total_seconds() == 60


def test_the_default_is_2_4_8_16_and_dead_after_five_failures() -> None:
    retry = Retry()
    assert [retry.delay(n, 0.5).total_seconds() for n in range(1, 5)] == [2, 4, 8, 16]
    states = [
        retry_verdict(
            retryable=True, certain=True, rerun=True, attempt=n + 1, failures=n, retry=retry,
            spread=0.5,
        ).state
        for n in range(5)
    ]  # fmt: skip
    assert states == [State.DUE] * 4 + [State.DEAD]


@pytest.mark.parametrize("jitter", [0.0, 0.2, 0.9])
def test_d13_a_delay_is_within_its_band_and_never_zero(jitter: float) -> None:
    retry = parse_retry({"initial": "10ms", "jitter": jitter})
    for failures in range(1, 12):
        middle = 0.01 * 2 ** (failures - 1)
        for spread in (0.0, 0.25, 0.999999):
            delay = retry.delay(failures, spread).total_seconds()
            assert delay > 0
            assert middle * (1 - jitter) - 1e-6 <= delay <= middle * (1 + jitter) + 1e-6


def test_jitter_stays_in_its_band_and_is_never_zero() -> None:
    retry = Retry(initial=timedelta(seconds=10), jitter=0.2)
    assert [retry.delay(1, s).total_seconds() for s in (0.0, 0.5, 1.0)] == [8, 10, 12]


@pytest.mark.parametrize("jitter", [0.0, 0.2, 0.9])
def test_no_delay_is_longer_than_the_cap_and_those_at_it_are_spread(jitter: float) -> None:
    cap = 3600.0
    retry = parse_retry({"initial": "1h", "max": "1h", "jitter": jitter})
    found = [retry.delay(n, s / 100).total_seconds() for n in (1, 9) for s in range(101)]
    assert max(found) == pytest.approx(cap, abs=1e-3)
    assert max(found) <= cap
    assert min(found) == pytest.approx(cap * (1 - jitter), abs=1e-3)
    assert len(set(found)) == (101 if jitter else 1)
    # One whose band reaches beyond the cap, and not its middle.
    near = parse_retry({"initial": "55m", "max": "1h", "jitter": 0.2})
    found = [near.delay(1, s / 100).total_seconds() for s in range(101)]
    assert (min(found), max(found)) == (pytest.approx(44 * 60), pytest.approx(cap))
    assert max(found) <= cap


@pytest.mark.parametrize(("asked", "delay"), [(1, 10), (30, 30), (10**6, 60)])
def test_retry_after_is_honoured_up_to_the_cap(asked: float, delay: float) -> None:
    retry = Retry(initial=timedelta(seconds=10), maximum=timedelta(seconds=60), jitter=0)
    assert retry.delay(1, 0.5, asked).total_seconds() == delay


def test_states_are_consistent() -> None:
    assert set(PHASE) == set(State)
    assert all((PHASE[s] < 3) == (s in OPEN) for s in State)
    leaving = {before for before, _ in MOVES} & TERMINAL
    assert leaving == {State.DEAD, State.ABANDONED}
    assert not allowed(State.SUCCEEDED, State.DUE, Actor.OWNER)
    assert allowed(State.DUE, State.RUNNING, Actor.WORKER)
    assert shown(State.DUE, 1) == "retrying"
    assert shown(State.DUE, 0) == "due"


def test_tenants_take_turns() -> None:
    items = [("a", n) for n in range(5)] + [("b", 0), ("c", 0), ("c", 1)]
    queue: FairQueue[tuple[str, int]] = FairQueue(lambda item: item[0])
    for item in items:
        queue.push(item)
    assert sorted(queue) == sorted(items)
    order = [queue.pop() for _ in range(len(queue))]
    assert order[:3] == [("a", 0), ("b", 0), ("c", 0)]
    assert sorted(order) == sorted(items)
    assert [n for tenant, n in order if tenant == "a"] == list(range(5))
    assert len(queue) == 0
    with pytest.raises(IndexError):
        queue.pop()


def test_a_tenant_keeps_its_turn_over_what_comes_meanwhile() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(lambda item: item[0])
    for n in range(3):
        queue.push(("a", n))
    queue.push(("b", 0))
    assert queue.pop() == ("a", 0)
    queue.push(("c", 0))
    assert [queue.pop() for _ in range(4)] == [("b", 0), ("a", 1), ("c", 0), ("a", 2)]


def test_what_is_given_back_is_the_next_again() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(lambda item: item[0])
    for item in (("a", 0), ("b", 0), ("a", 1)):
        queue.push(item)
    queue.push_back(queue.pop())
    assert [queue.pop() for _ in range(2)] == [("a", 0), ("b", 0)]
    queue.push_back(("b", 0))
    assert len(queue) == 2
    assert [queue.pop() for _ in range(2)] == [("b", 0), ("a", 1)]
