"""Circuit breakers: tables of calls at instants."""

from __future__ import annotations

from tickrail.executors.breaker import Breaker, BreakerSettings, Refusal

KEY = ("tenant", "origin")


def failing(breaker: Breaker, times: int, at: float, *, probe: bool = False) -> None:
    for _ in range(times):
        breaker.tell(KEY, False, at, probe=probe)


def test_a_circuit_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker(BreakerSettings(3, 10))
    failing(breaker, 2, 0)
    breaker.tell(KEY, True, 1, probe=False)
    failing(breaker, 2, 2)
    breaker.tell(KEY, None, 3, probe=False)
    assert breaker.ask(KEY, 3) is False
    failing(breaker, 1, 4)
    assert breaker.ask(KEY, 4) == Refusal(10, patient=True)
    assert breaker.ask(KEY, 9) == Refusal(5, patient=True)
    assert breaker.ask(("tenant", "another"), 9) is False
    assert (breaker.open, breaker.opened) == (1, 1)


def test_failures_far_apart_are_not_in_a_row() -> None:
    breaker = Breaker(BreakerSettings(3, 10))
    for minute in range(0, 1000, 61):
        failing(breaker, 1, minute)
    assert breaker.ask(KEY, 1000) is False


def test_one_probe_closes_it() -> None:
    breaker = Breaker(BreakerSettings(1, 10))
    failing(breaker, 1, 0)
    assert breaker.ask(KEY, 10) is True
    assert breaker.ask(KEY, 10) == Refusal(10, patient=True)
    breaker.tell(KEY, True, 11, probe=True)
    assert breaker.ask(KEY, 11) is False
    assert breaker.open == 0


def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_two_minutes() -> None:
    breaker = Breaker(BreakerSettings(1, 10))
    failing(breaker, 1, 0)
    now, waits = 0.0, []
    for _ in range(6):
        refusal = breaker.ask(KEY, now)
        assert isinstance(refusal, Refusal)
        waits.append(refusal.seconds)
        now += refusal.seconds
        assert breaker.ask(KEY, now) is True
        failing(breaker, 1, now, probe=True)
    assert waits == [10, 20, 40, 80, 120, 120]
    assert breaker.opened == 1


def test_a_probe_that_tells_nothing_lets_another_through() -> None:
    breaker = Breaker(BreakerSettings(1, 10))
    failing(breaker, 1, 0)
    assert breaker.ask(KEY, 10) is True
    breaker.tell(KEY, None, 11, probe=True)
    assert breaker.ask(KEY, 11) is True


def test_late_failures_of_older_calls_change_nothing() -> None:
    breaker = Breaker(BreakerSettings(1, 10))
    failing(breaker, 5, 0)
    assert breaker.ask(KEY, 1) == Refusal(9, patient=True)
    assert breaker.opened == 1


def test_after_five_minutes_a_refused_call_is_a_failure() -> None:
    breaker = Breaker(BreakerSettings(1, 400))
    failing(breaker, 1, 0)
    assert breaker.ask(KEY, 299) == Refusal(101, patient=True)
    assert breaker.ask(KEY, 300) == Refusal(100, patient=False)


def test_zero_failures_is_never() -> None:
    breaker = Breaker(BreakerSettings(0, 10))
    failing(breaker, 1000, 0)
    assert breaker.ask(KEY, 0) is False


def test_what_is_remembered_is_bounded() -> None:
    breaker = Breaker(BreakerSettings(2, 10))
    failing(breaker, 2, 0)
    for n in range(25_000):
        breaker.tell(n, False, 0, probe=False)
    assert isinstance(breaker.ask(KEY, 1), Refusal)
    assert len(breaker._circuits) <= 10_000
