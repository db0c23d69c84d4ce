"""The retry policy of a job's document: read, written, what is refused, and what it decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.definition import Definition, parse_definition
from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import JobId
from tickrail.core.outcomes import EXPECTED, KNOWN
from tickrail.core.policies import Retry
from tickrail.core.retry_document import parse_retry, retry_document


def definition(retry: dict[str, Any]) -> Definition:
    return parse_definition(
        {"name": "a", "target": {"noop": {}}, "retry": retry},
        job=JobId(UUID(int=1)),
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_a_retry_policy_is_read_back_as_it_was_written() -> None:
    written = {
        "max_attempts": 3, "initial": "1s", "multiplier": 3, "max": "1m", "jitter": 0.5,
        "on": ["http_404", "http_404"], "not_on": ["exit_64-78", "raised_ValueError"],
    }  # fmt: skip
    found = definition(written)
    second, minute = timedelta(seconds=1), timedelta(minutes=1)
    policy = Retry(3, second, 3.0, minute, 0.5, ("http_404",), ("exit_64-78", "raised_ValueError"))
    assert found.retry == policy
    assert parse_retry(found.document()["retry"]) == policy
    # A definition that was stored before these lists were there.
    assert parse_retry({"max_attempts": 3}) == Retry(max_attempts=3)
    assert retry_document(Retry())["not_on"] == []


@pytest.mark.parametrize(
    ("patterns", "pointer", "message"),
    [
        ("http_4xx", "/retry/not_on", "is a string"),
        ([404], "/retry/not_on/0", "is a number"),
        (["timed_out", "http_6xx"], "/retry/not_on/1", "'http_6xx' is not a pattern of this"),
        (["http_4XX"], "/retry/not_on/0", "not a pattern of this family"),
        (["http_42"], "/retry/not_on/0", "is outside of http_100 to http_599"),
        (["http"], "/retry/not_on/0", "not a pattern of this family"),
        (["exit_256"], "/retry/not_on/0", "is outside of exit_0 to exit_255"),
        (["exit_78-64"], "/retry/not_on/0", "range the wrong way round"),
        (["signal_99"], "/retry/not_on/0", "is outside of signal_1 to signal_64"),
        (["raised_"], "/retry/not_on/0", "not the name of an outcome"),
        (["ValueError"], "/retry/not_on/0", "not the name of an outcome"),
        (["x" * 101], "/retry/not_on/0", "not the name of an outcome"),
        (["timeout"], "/retry/not_on/0", "'timeout' is not the name of an outcome"),
        (["timed_out_later"], "/retry/not_on/0", "not the name of an outcome"),
        (["interrupted"], "/retry/not_on/0", "not a failure that a policy decides about"),
        (["a"] * 51, "/retry/not_on", "has 51 entries"),
        (["http_503"], "/retry/not_on", "'http_503', which `on` names too"),
    ],
)
def test_what_is_no_pattern_is_named(patterns: object, pointer: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        definition({"on": ["http_503"], "not_on": patterns})
    (problem,) = refused.value.problems
    assert problem.pointer == pointer
    assert message in problem.message
    assert problem.expected


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("timeout", "did you mean 'timed_out'?"),
        ("conection_lost", "did you mean 'connection_lost'?"),
        ("x", EXPECTED),
    ],
)
def test_the_nearest_outcome_is_told(pattern: str, near: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        definition({"on": [pattern]})
    assert [(p.pointer, p.expected) for p in refused.value.problems] == [("/retry/on/0", near)]


@pytest.mark.parametrize("known", [known.name for known in KNOWN])
def test_every_outcome_may_be_named(known: str) -> None:
    assert definition({"not_on": [known]}).retry.not_on == (known,)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("http_404", "http_404", "http_405"),
        ("http_4xx", "http_499", "http_500"),
        ("http_500-503", "http_503", "http_504"),
        ("exit_64-78", "exit_64", "exit_79"),
        ("exit_3", "exit_3", "exit_30"),
        ("signal_9", "signal_9", "exit_9"),
        ("timed_out", "timed_out", "timed_out_later"),
        ("raised_ValueError", "raised_ValueError", "raised_KeyError"),
    ],
)
def test_a_pattern_names_what_it_says(pattern: str, yes: str, no: str) -> None:
    never = parse_retry({"not_on": [pattern]})
    also = parse_retry({"on": [pattern]})
    assert not never.again([yes], usual=True)
    assert never.again([no], usual=True)
    assert also.again([yes], usual=False)
    assert not also.again([no], usual=False)


def test_a_further_name_counts_and_never_goes_before_also() -> None:
    policy = parse_retry({"on": ["raised_OSError"], "not_on": ["raised_FileNotFoundError"]})
    missing = ("raised_FileNotFoundError", "raised_OSError", "raised_Exception")
    assert not policy.again(missing, usual=True)
    assert policy.again(("raised_OSError", "raised_Exception"), usual=False)
