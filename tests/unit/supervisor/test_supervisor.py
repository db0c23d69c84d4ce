"""What ends is started again after a pause that grows; the tests hold the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.support.clock import FakeClock

from tickrail_cli.supervisor import Supervisor, how, pause_before


@dataclass
class FakeChild:
    name: str
    alive: bool = False
    exit_code: int | None = None
    starts: list[float] = field(default_factory=list)
    refuses: bool = False
    clock: FakeClock = field(default_factory=FakeClock)

    def start(self) -> None:
        self.starts.append(self.clock.monotonic())
        if self.refuses:
            raise OSError("no such program")
        self.alive = True

    def die(self, code: int = -9) -> None:
        self.alive, self.exit_code = False, code


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(monotonic=0.0)


@pytest.fixture
def child(clock: FakeClock) -> FakeChild:
    return FakeChild("worker-1", clock=clock)


@pytest.fixture
def supervisor(child: FakeChild, clock: FakeClock) -> Supervisor:
    made = Supervisor([child], clock)
    made.start()
    return made


def live(supervisor: Supervisor, clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        clock.advance(0.1)
        supervisor.run_once()


def restarted_after(supervisor: Supervisor, child: FakeChild, clock: FakeClock) -> float:
    child.die()
    supervisor.run_once()
    died, count = clock.monotonic(), len(child.starts)
    while len(child.starts) == count:
        live(supervisor, clock, 0.1)
    return child.starts[-1] - died


def test_pauses_grow_from_half_a_second_to_half_a_minute() -> None:
    assert [pause_before(n) for n in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert pause_before(10_000) == 30


def test_a_child_that_lives_is_left_alone(
    supervisor: Supervisor, child: FakeChild, clock: FakeClock
) -> None:
    live(supervisor, clock, 200)
    assert child.starts == [0.0]
    assert supervisor.restarts == {"worker-1": 0}


def test_each_short_life_doubles_the_pause(
    supervisor: Supervisor, child: FakeChild, clock: FakeClock
) -> None:
    pauses = [restarted_after(supervisor, child, clock) for _ in range(4)]
    assert pauses == pytest.approx([0.5, 1, 2, 4], abs=0.11)
    assert supervisor.restarts == {"worker-1": 4}


def test_a_life_of_a_minute_forgets_the_short_ones(
    supervisor: Supervisor, child: FakeChild, clock: FakeClock
) -> None:
    for _ in range(3):
        restarted_after(supervisor, child, clock)
    live(supervisor, clock, 60.5)
    assert restarted_after(supervisor, child, clock) == pytest.approx(0.5, abs=0.11)


def test_one_that_cannot_be_started_is_tried_again_with_the_same_pauses(clock: FakeClock) -> None:
    child = FakeChild("api", refuses=True, clock=clock)
    supervisor = Supervisor([child], clock)
    supervisor.start()
    live(supervisor, clock, 4)
    assert child.starts == pytest.approx([0, 0.5, 1.5, 3.5], abs=0.25)
    child.refuses = False
    live(supervisor, clock, 5)
    assert child.alive
    assert len(child.starts) == 5


def test_one_that_runs_already_is_not_started(clock: FakeClock) -> None:
    server = FakeChild("Kafka", alive=True, clock=clock)
    supervisor = Supervisor([server], clock)
    supervisor.start()
    assert server.starts == []
    server.die()
    live(supervisor, clock, 1)
    assert server.alive


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "signal 9"), (3, "exit code 3"), (0, "exit code 0"), (None, "unknown")]
)
def test_ends_in_words(code: int | None, words: str) -> None:
    assert how(code) == words
