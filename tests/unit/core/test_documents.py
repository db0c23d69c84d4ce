"""What is said of a wrong value is written as its author would write it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tickrail.core.documents import Reader, nearest, shown
from tickrail.core.policies import Overlap
from tickrail.core.quotas import Quota


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (timedelta(seconds=1), timedelta(days=30), "from 1s to 30d"),
        (timedelta(milliseconds=10), timedelta(minutes=90), "from 0.01s to 1h30m"),
        (timedelta(0), timedelta(days=1), "from 0s to 1d"),
    ],
)
def test_the_bounds_of_a_duration_are_durations(
    low: timedelta, high: timedelta, bounds: str
) -> None:
    reader = Reader({"grace": "365d"})
    reader.duration("grace", low, low=low, high=high)
    assert [(p.message, p.expected) for p in reader.problems] == [("is 365d", bounds)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("skip", "'skip'"),
        (True, "true"),
        (["a", None], '["a", null]'),
        ({"a": 1}, '{"a": 1}'),
        ("x" * 100, repr("x" * 60)),
    ],
)
def test_a_value_is_shown_as_json(value: object, text: str) -> None:
    assert shown(value) == text
    reader = Reader({"overlap": value})
    reader.choice("overlap", Overlap.ALLOW)
    assert [p.message for p in reader.problems] == ([] if value == "skip" else [f"is {text}"])


@pytest.mark.parametrize(("value", "said"), [(None, "is null"), ("", "is empty"), ([], "is empty")])
def test_a_condition_that_came_out_empty_is_not_no_condition(value: object, said: str) -> None:
    reader = Reader({"id": value, "other": value, "kept": ["a"], "zero": 0}, "/filter")
    for name in ("id", "kept", "zero"):
        reader.raw(name)
    reader.without_empty()
    assert [(p.pointer, p.message) for p in reader.problems] == [("/filter/id", said)]
    reader.without_empty()
    assert len(reader.problems) == 1


@pytest.mark.parametrize("value", [None, 0, "true", []])
def test_a_flag_is_true_or_false(value: object) -> None:
    reader = Reader({"dry_run": value})
    reader.flag("dry_run", default=False)
    assert [(p.pointer, p.expected) for p in reader.problems] == [("/dry_run", "true or false")]
    assert Reader({}).flag("dry_run", default=True)


def test_members_of_an_enumeration_are_said_as_their_values() -> None:
    assert nearest("jobz", Quota) == "did you mean 'jobs'?"
