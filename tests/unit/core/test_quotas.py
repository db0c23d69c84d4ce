"""Quotas as values: documents, windows, levels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.core.quotas import (
    Counted,
    Quota,
    Quotas,
    RequestRate,
    amounts_document,
    left_of,
    quota_text,
    quotas_of,
    reached,
    read_amounts,
    window_of,
)

AT = datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC)


def counted(used: int, limit: int, told: int = 0) -> Counted:
    return Counted(Quota.JOBS, window_of(Quota.JOBS, AT), limit, used, told)


def test_a_document_is_read_and_written_back_as_it_was() -> None:
    document = {
        "jobs": 5,
        "launches_per_minute": "unlimited",
        "requests_per_second": 0.5,
        "min_interval": "1m30s",
    }
    assert amounts_document(read_amounts(document)) == document
    assert read_amounts({"jobs": None}) == {}


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (None, "/quotas"),
        ([], "/quotas"),
        ({"jobs": True}, "/quotas/jobs"),
        ({"jobs": "unlimitd"}, "/quotas/jobs"),
        ({"min_interval": 60}, "/quotas/min_interval"),
        ({"min_interval": "400d"}, "/quotas/min_interval"),
        ({"requests_per_second": float("inf")}, "/quotas/requests_per_second"),
        ({"launches": 3}, "/quotas/launches"),
    ],
)
def test_what_is_wrong_is_named(document: Any, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as e:
        read_amounts(document)
    assert [p.pointer for p in e.value.problems] == [pointer]


def test_what_is_answered_can_be_sent_back() -> None:
    answer = Quotas(jobs=5).document() | {"running": "unlimited"}
    amounts = read_amounts(answer, "")
    assert quotas_of(amounts, {}) == Quotas(jobs=5)
    with pytest.raises(InvalidInputError) as e:
        read_amounts({"running": 5}, "")
    [problem] = e.value.problems
    assert (problem.pointer, problem.expected[:11]) == ("/running", "max_running")


def test_what_is_set_for_a_tenant_goes_before_what_is_set_for_everybody() -> None:
    shared = {Quota.JOBS: 10.0, Quota.LAUNCHES_PER_DAY: 5.0, Quota.REQUESTS_PER_SECOND: 2.5}
    found = quotas_of({Quota.JOBS: None, Quota.MIN_INTERVAL: 60.0}, shared)
    assert (found.jobs, found.launches_per_day) == (None, 5)
    assert found.min_interval == timedelta(minutes=1)
    assert found.requests == RequestRate(2.5, 3)
    assert quotas_of({}, {}).payload_bytes == 256 * 1024


def test_windows_begin_at_the_full_minute_and_at_midnight() -> None:
    minute, day = window_of(Quota.LAUNCHES_PER_MINUTE, AT), window_of(Quota.LAUNCHES_PER_DAY, AT)
    assert minute.starts_at == datetime(2026, 3, 29, 1, 59, tzinfo=UTC)
    assert minute.ends_at == datetime(2026, 3, 29, 2, tzinfo=UTC)
    assert day.starts_at == datetime(2026, 3, 29, tzinfo=UTC)
    assert day.ends_at == datetime(2026, 3, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("used", "more", "limit", "told", "percent"),
    [
        (0, 1, 10, 0, None),
        (7, 1, 10, 0, 80),
        (8, 1, 10, 80, None),
        (9, 1, 10, 80, 100),
        (0, 10, 10, 0, 100),
        (10, 1, 10, 100, None),
        (5, 0, 5, 0, None),
        (0, 0, 0, 0, None),
        (0, 1, 1, 0, 100),
    ],
)
def test_levels(used: int, more: int, limit: int, told: int, percent: int | None) -> None:
    found = reached(counted(used, limit, told), more)
    assert (None if found is None else found.percent) == percent


def test_the_narrowest_decides_and_nothing_is_left_of_one_that_was_lowered() -> None:
    assert left_of([counted(2, 10), counted(9, 10)]) == 1
    assert left_of([counted(20, 10)]) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("jobs=100", ("jobs", 100)),
        ("jobs=unlimited", ("jobs", "unlimited")),
        ("jobs=", ("jobs", None)),
        ("min_interval = 5m", ("min_interval", "5m")),
        ("requests_per_second=2.5", ("requests_per_second", 2.5)),
    ],
)
def test_a_quota_as_a_command_names_it(text: str, found: tuple[str, object]) -> None:
    assert quota_text(text) == found


@pytest.mark.parametrize("text", ["jobs", "job=1", "jobs=many", "min_interval=soon", "=3"])
def test_what_a_command_may_not_say(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        quota_text(text)


def test_a_burst_is_shown_without_a_rate_to_belong_to() -> None:
    """It is stored, and holds as soon as there is a rate."""
    answer = quotas_of(read_amounts({"request_burst": 10}), {}).document()
    assert (answer["requests_per_second"], answer["request_burst"]) == ("unlimited", 10)
    assert quotas_of(read_amounts(answer, ""), {}).document() == answer
    assert quotas_of({Quota.REQUESTS_PER_SECOND: 2.0}, {}).document()["request_burst"] == 2


def test_names_that_would_be_right_are_those_that_can_be_set() -> None:
    with pytest.raises(InvalidInputError) as e:
        read_amounts({"zzz": 1, "running": "unlimited"})
    [problem] = e.value.problems
    assert problem.pointer == "/quotas/zzz"
    assert set(problem.expected.removeprefix("one of ").split(", ")) == set(Quota)
