from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
import structlog
from structlog.testing import capture_logs
from tests.support.clock import FakeClock

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.runtime.loop import LoopThread, stop_all, troubles
from tickrail.runtime.metrics import PrometheusMetrics

WAIT = 20.0


class Turns:
    """A body that counts its turns and does what the test says for each."""

    def __init__(self, *steps: float | Exception | None, rest: float = 3600.0) -> None:
        self._steps = list(steps)
        self._rest = rest
        self._changed = threading.Condition()
        self.count = 0

    def __call__(self) -> float | None:
        with self._changed:
            step = self._steps.pop(0) if self._steps else self._rest
            self.count += 1
            self._changed.notify_all()
        if isinstance(step, Exception):
            raise step
        return step

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, WAIT), self.count


def loop_of(
    body: Callable[[], float | None], clock: FakeClock | None = None, **more: object
) -> LoopThread:
    rng = random.Random(1)
    return LoopThread("tick", body, clock or FakeClock(), rng=rng, **more)  # type: ignore[arg-type]  # checked by use


def test_called_again_at_once_until_it_wants_to_wait_then_by_a_wake_up() -> None:
    turns = Turns(None, 0, None)
    loop = loop_of(turns)
    loop.start()
    turns.wait(4)
    loop.wake()
    turns.wait(5)
    assert loop.stop(WAIT)
    assert turns.count == 5
    assert not loop.alive


def test_a_wake_up_during_a_turn_is_not_lost() -> None:
    inside, go_on = threading.Event(), threading.Event()
    turns = Turns()

    def body() -> float | None:
        wanted = turns()
        if turns.count == 1:
            inside.set()
            assert go_on.wait(WAIT)
        return wanted

    loop = loop_of(body)
    loop.start()
    assert inside.wait(WAIT)
    loop.wake()
    go_on.set()
    turns.wait(2)
    assert loop.stop(WAIT)


def test_an_outage_is_said_once_and_its_end_once() -> None:
    away = UnavailableError("PostgreSQL does not answer")
    turns = Turns(away, away, away)
    clock = FakeClock()
    with capture_logs() as lines:
        loop = loop_of(turns, clock)
        loop.start()
        turns.wait(2)
        assert loop.last_error is away
        turns.wait(4)
        assert loop.stop(WAIT)
    assert [line["event"] for line in lines] == ["waiting for a server", "goes on"]
    assert loop.last_error is None


def test_a_bug_is_logged_each_time_and_does_not_end_the_thread() -> None:
    turns = Turns(ValueError("a"), KeyError("b"))
    metrics = PrometheusMetrics()
    with capture_logs() as lines:
        loop = loop_of(turns, metrics=metrics)
        loop.start()
        turns.wait(3)
        assert loop.alive
        assert loop.stop(WAIT)
    assert [line["event"] for line in lines] == ["a loop's turn failed"] * 2
    assert all(line["exc_info"] for line in lines)
    assert b'tickrail_loop_errors_total{loop="tick"} 2.0' in metrics.render()[0]
    assert b'tickrail_loop_turns_total{loop="tick"} 3.0' in metrics.render()[0]


def test_the_back_off_grows_is_jittered_and_bounded_and_starts_anew() -> None:
    loop = loop_of(Turns())
    delays = [loop._backoff() for _ in range(12)]
    assert 0.05 <= delays[0] <= 0.1
    assert all(2.5 <= delay <= 5.0 for delay in delays[6:])
    assert len(set(delays)) == len(delays)
    loop._succeeded()
    assert loop._backoff() <= 0.1


def test_a_wake_up_does_not_shorten_the_rest_after_an_error() -> None:
    loop = loop_of(Turns())
    loop.wake()
    waited = SystemClock()
    before = waited.monotonic()
    loop._wait(0.05, rests=True)
    assert waited.monotonic() - before >= 0.045
    loop._wait(WAIT, rests=False)


def test_stuck_is_seen_by_the_clock_alone() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def body() -> float:
        inside.set()
        assert go_on.wait(WAIT)
        return 3600.0

    clock = FakeClock()
    loop = loop_of(body, clock, stuck_after=5.0)
    assert not loop.stuck(clock.monotonic())
    loop.start()
    assert inside.wait(WAIT)
    clock.advance(5.0)
    assert troubles([loop], clock) == {}
    clock.advance(0.1)
    assert troubles([loop], clock) == {"tick": "its turn has taken more than 5 s"}
    go_on.set()
    assert loop.stop(WAIT)
    assert troubles([loop], clock) == {}


def test_a_thread_that_ended_by_itself_fails_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)

    def body() -> float:
        raise SystemExit

    clock = FakeClock()
    loop = loop_of(body, clock)
    loop.start()
    assert loop._thread is not None
    loop._thread.join(WAIT)
    assert troubles([loop], clock) == {"tick": "its thread has ended"}


def test_stop_before_start_is_legal_and_final() -> None:
    turns = Turns()
    loop = loop_of(turns)
    assert loop.stop(WAIT)
    loop.start()
    assert not loop.alive
    assert turns.count == 0


def test_stop_from_inside_the_body_ends_after_the_turn() -> None:
    answers: list[bool] = []

    def body() -> float | None:
        answers.append(loop.stop(WAIT))
        return None

    loop = loop_of(body)
    loop.start()
    assert loop._thread is not None
    loop._thread.join(WAIT)
    assert answers == [False]
    assert loop.stop(WAIT)


def test_what_belongs_to_the_thread_is_let_go_on_it_also_after_an_error() -> None:
    threads: list[str] = []

    def at_end() -> None:
        threads.append(threading.current_thread().name)
        raise ValueError

    with capture_logs() as lines:
        loop = loop_of(Turns(), at_end=at_end)
        loop.start()
        assert loop.stop(WAIT)
    assert threads == ["tick"]
    assert [line["event"] for line in lines] == ["the end of a loop failed"]


def test_a_loop_that_does_not_end_in_time_is_named() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def body() -> float | None:
        inside.set()
        assert go_on.wait(WAIT)
        return None

    slow, quick = loop_of(body), LoopThread("quick", Turns(), FakeClock())
    slow.start()
    quick.start()
    assert inside.wait(WAIT)
    assert stop_all([slow, quick], 0.05, SystemClock()) == ["tick"]
    go_on.set()
    assert stop_all([slow, quick], WAIT, SystemClock()) == []


def test_start_stop_and_wake_from_many_threads() -> None:
    structlog.get_logger()
    for seed in range(60):
        rng = random.Random(seed)
        turns = Turns(rest=rng.choice([0.0, 0.001, 3600.0]))
        ended = []
        loop = loop_of(turns, at_end=lambda ended=ended: ended.append(1))
        started = threading.Barrier(9)
        calls = [loop.start, loop.wake, loop.stop] * 3
        rng.shuffle(calls)

        def go(call: Callable[[], object], started: threading.Barrier = started) -> None:
            started.wait(WAIT)
            call()

        threads = [threading.Thread(target=go, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert loop.stop(WAIT)
        assert not loop.alive
        assert len(ended) == (1 if loop._thread is not None else 0)
        count = turns.count
        loop.wake()
        loop.start()
        assert turns.count == count
