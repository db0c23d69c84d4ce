"""A readiness answer does not wait for a server that says nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.runtime.look import Look

CLOCK = SystemClock()


def test_what_is_found_is_answered_and_looked_for_anew() -> None:
    found: list[Mapping[str, str]] = [{"postgresql": "refused"}, {}]
    look = Look("postgresql", lambda: found.pop(0), CLOCK, within=20)
    assert look.read() == {"postgresql": "refused"}
    assert look.read() == {}


def test_a_look_that_takes_long_is_told_of_and_goes_on_alone() -> None:
    free, looks = threading.Event(), []

    def frozen() -> Mapping[str, str]:
        looks.append(1)
        free.wait(20)
        return {}

    look = Look("postgresql", frozen, CLOCK, within=0.05)
    began = CLOCK.monotonic()
    assert look.read() == look.read() == {"postgresql": "no answer for 0 s"}
    assert CLOCK.monotonic() - began < 10
    assert len(looks) == 1, "no second one beside it"
    free.set()
    until(lambda: look.read() == {}, 20)


def test_a_look_that_fails_is_a_problem() -> None:
    def broken() -> Mapping[str, str]:
        raise RuntimeError

    assert Look("postgresql", broken, CLOCK, within=20).read() == {"postgresql": "RuntimeError"}
