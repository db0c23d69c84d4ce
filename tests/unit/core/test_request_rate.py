"""Slices of tokens: no more pass than the burst and what comes in, whoever takes them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from tickrail.core.quotas import RequestRate
from tickrail.core.request_rate import Bucket, take_slice

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_slice_is_an_eighth_of_what_there_is_and_the_last_ones_are_taken_one_by_one() -> None:
    bucket, sizes = Bucket(60, NOON), []
    rate = RequestRate(1.0, 60)
    while True:
        bucket, got = take_slice(bucket, rate, NOON, 0)
        if not got.tokens:
            break
        sizes.append(got.tokens)
    assert sum(sizes) == 60
    assert sizes[:3] == [7, 6, 5]
    assert sizes[-10:] == [1] * 10
    assert got.wait == pytest.approx(1.0)


def test_where_many_come_in_a_second_a_slice_is_a_twentieth_of_one_at_least() -> None:
    rate = RequestRate(1_000.0, 1_000)
    bucket, got = take_slice(Bucket(0, NOON), rate, NOON, 0)
    assert (got.tokens, got.wait) == (0, pytest.approx(0.05))
    _, got = take_slice(bucket, rate, after(0.05), 0)
    assert got.tokens == 50


def test_what_was_not_used_comes_back_and_a_full_bucket_takes_no_more() -> None:
    rate = RequestRate(1.0, 10)
    bucket, got = take_slice(Bucket(5, NOON), rate, NOON, 3)
    assert got.tokens == 1
    assert bucket.tokens == pytest.approx(7)
    bucket, _ = take_slice(Bucket(10, NOON), rate, NOON, 3)
    assert bucket.tokens == pytest.approx(9)


def test_a_clock_that_went_back_fills_nothing_and_is_not_written_down() -> None:
    bucket, _ = take_slice(Bucket(5, after(10)), RequestRate(1.0, 10), NOON, 0)
    assert bucket == Bucket(pytest.approx(4), after(10))


def test_in_any_stretch_no_more_pass_than_the_burst_what_came_and_a_slice_each() -> None:
    """Processes take slices at random moments and use them within a second."""
    draw = random.Random(7)
    for _ in range(50):
        rate = RequestRate(draw.choice([0.5, 3.0, 40.0]), draw.choice([1, 8, 60]))
        bucket, at = Bucket(rate.burst, NOON), 0.0
        held, until = [0] * 3, [0.0] * 3
        passed: list[float] = []
        for _ in range(400):
            at += draw.expovariate(4 * rate.per_second)
            who = draw.randrange(3)
            if not held[who] or at >= until[who]:
                bucket, got = take_slice(bucket, rate, after(at), held[who])
                held[who], until[who] = got.tokens, at + 1
            if held[who]:
                held[who] -= 1
                passed.append(at)
        slack = 3 * max(1, rate.burst / 8, rate.per_second * 0.05) + 1
        for i, begin in enumerate(passed):
            for j in range(i, len(passed)):
                length = passed[j] - begin
                assert j - i + 1 <= rate.burst + length * rate.per_second + slack
