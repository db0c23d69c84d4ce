"""Expressions found in the wild against brute force: a seeded sample of `make test-oracle`."""

from __future__ import annotations

from random import Random

import pytest
from tests.oracle.corpus import HARD, JOB, RULES, ZONES, compare, expressions, moments
from tests.oracle.days import Walls
from tests.oracle.expression import read
from tests.support.schedules import at

from tickrail.core.schedule import Gap
from tickrail.core.walk import Walker

FIRST, LAST = 2015, 2030
EXPRESSIONS = 40


@pytest.mark.parametrize("zone", ZONES)
def test_a_sample_of_the_corpus_is_brute_force(zone: str) -> None:
    random = Random(f"corpus {zone}")
    texts = random.sample(expressions(), EXPRESSIONS) + random.sample(HARD, 5)
    texts = [t for t in texts if not t.startswith(("* * * * * *", "*/2 * * * * "))]
    middle = random.choice(moments(zone, FIRST, LAST))
    report = compare(texts, zone, [middle], (RULES[0], *random.sample(RULES[1:], 2)))
    assert report.differences == []
    assert report.walks > EXPRESSIONS
    assert report.instants > report.walks


def test_the_oracle_agrees_with_what_was_worked_out_by_hand() -> None:
    walls = Walls("America/New_York")
    fixed = read("30 2 * * *", JOB)
    low, high = at("2026-03-07T12:00", "America/New_York"), at("2026-03-09T12:00Z")
    for gap, instant in (("after", "07:00"), ("shift", "07:30")):
        found = walls.due(fixed, low, high, gap, "first")
        assert found == [at(f"2026-03-08T{instant}Z"), at("2026-03-09T06:30Z")]
    assert walls.due(fixed, low, high, "skip", "first") == [at("2026-03-09T06:30Z")]
    low, high = at("2026-11-01T04:59Z"), at("2026-11-01T12:00Z")
    twice = read("0,30 1 * * *", JOB)
    found = [x.strftime("%H:%M") for x in walls.due(twice, low, high, "after", "both")]
    assert found == ["05:00", "05:30", "06:00", "06:30"]
    assert len(walls.due(read("*/15 * * * *", JOB), low, high, "skip", "first")) == 29
    days = read("0 9 13 * FRI", JOB)
    found = Walls("UTC").due(days, at("2026-02-01T00:00Z"), at("2026-03-14T00:00Z"), "", "first")
    assert [x.day for x in found] == [6, 13, 20, 27, 6, 13]


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = "Europe/Berlin"
    middle = moments(zone, 2026, 2026)[0]
    assert compare(["30 2 * * *"], zone, [middle], RULES[:1]).differences == []
    stand_in = Walker._stand_in

    def late(self: Walker, *args: object) -> int | None:
        found = stand_in(self, *args)  # type: ignore[arg-type]
        return None if found is None or self._gap is not Gap.AFTER else found + 60

    monkeypatch.setattr(Walker, "_stand_in", late)
    assert compare(["30 2 * * *"], zone, [middle], RULES[:1]).differences != []
