"""When operators are told, and when a job counts as silent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.expectations import AGAIN, Expectation, ExpectingJob, silence_notice, verdict_of
from tickrail.core.ids import JobId, TenantId
from tickrail.core.notices import event
from tickrail.core.ports_notice import OwedNotice
from tickrail.core.watch import Finding, Wrong
from tickrail.core.watch_alarm import REMIND, SHOWN, TOGETHER, AlarmBook, Said

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TENANT = TenantId(UUID(int=1))
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def found(*numbers: int, wrong: Wrong = Wrong.MISSING) -> dict[JobId, Finding]:
    late = AT - timedelta(seconds=90)
    slots = 2 if wrong is Wrong.MISSING else 0
    made = (
        Finding(JobId(UUID(int=n)), TENANT, f"job-{n}", wrong, slots, late, None, None)
        for n in numbers
    )
    return {f.job: f for f in made}


def test_each_job_is_told_once_and_that_all_is_well_again() -> None:
    book = AlarmBook()
    assert book.look({}, AT, whole=True) is None
    raised = book.look(found(1, 2), AT, whole=False)
    assert raised is not None
    assert raised.said is Said.RAISED
    assert raised.text == (
        "4 slots of 2 jobs neither launched nor skipped, the oldest due 90 s ago"
    )
    assert raised.data["slots_missing"] == 4
    assert raised.data["late_seconds"] == 90
    assert [j["name"] for j in raised.data["jobs"]] == ["job-1", "job-2"]
    for seconds in (1, 60, 600):
        assert book.look(found(1, 2), AT + timedelta(seconds=seconds), whole=True) is None
    assert book.look(found(2), AT + timedelta(seconds=700), whole=True) is None
    # Not before every job was looked at again.
    assert book.look({}, AT + timedelta(seconds=710), whole=False) is None
    cleared = book.look({}, AT + timedelta(seconds=720), whole=True)
    assert cleared is not None
    assert cleared.said is Said.CLEARED
    assert book.look({}, AT + timedelta(seconds=730), whole=True) is None
    again = book.look(found(1), AT + timedelta(seconds=740), whole=True)
    assert again is not None
    assert again.said is Said.RAISED


def test_what_is_found_next_is_gathered_and_said_again_each_hour() -> None:
    book = AlarmBook()
    assert book.look(found(1), AT, whole=True) is not None
    assert book.look(found(1, 2), AT + timedelta(seconds=10), whole=True) is None
    more = book.look(found(1, 2), AT + TOGETHER, whole=True)
    assert more is not None
    assert len(more.data["jobs"]) == 2
    assert book.look(found(1, 2), AT + TOGETHER + REMIND - AGAIN, whole=True) is None
    assert book.look(found(1, 2), AT + TOGETHER + REMIND, whole=True) is not None
    # What was adrift and is missing now is news.
    other = AlarmBook()
    assert other.look(found(1, wrong=Wrong.ADRIFT), AT, whole=True) is not None
    assert other.look(found(1), AT + TOGETHER, whole=True) is not None


def test_an_event_names_twenty_jobs_and_what_is_wrong_with_each() -> None:
    jobs = found(*range(1, 31)) | found(40, wrong=Wrong.ADRIFT) | found(50, wrong=Wrong.UNREADABLE)
    raised = AlarmBook().look(jobs, AT, whole=True)
    assert raised is not None
    assert len(raised.data["jobs"]) == SHOWN
    counts = [raised.data[f"jobs_{w.value}"] for w in Wrong]
    assert counts == [30, 1, 1]
    assert raised.text.endswith(
        "; 1 job not waiting for the next slot; 1 job unreadable to the watchdog"
    )


def expecting(**changes: Any) -> ExpectingJob:
    base = ExpectingJob(
        JobId(UUID(int=7)), TENANT, "nightly", 26 * HOUR, None, AT, True, AT - 26 * HOUR,
        {"notify": ["webhook:ops", "kafka:alerts"]}, None,
    )  # fmt: skip
    return base._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({}, Expectation(AT + AGAIN, AT - 26 * HOUR, tell=True), id="silent"),
        pytest.param(
            {"silent_since": AT - 26 * HOUR},
            Expectation(AT + AGAIN, AT - 26 * HOUR),
            id="silent, and told",
        ),
        pytest.param(
            {"succeeded_at": AT - HOUR}, Expectation(AT + 25 * HOUR), id="it has succeeded"
        ),
        pytest.param(
            {"silent_since": AT - 3 * DAY, "since": AT - 3 * DAY, "succeeded_at": AT - HOUR},
            Expectation(AT + 25 * HOUR),
            id="it succeeds again",
        ),
        pytest.param(
            {"silent_since": AT - 5 * DAY, "since": AT - 5 * DAY, "succeeded_at": AT - 2 * DAY},
            Expectation(AT + AGAIN, AT - 2 * DAY, tell=True),
            id="a success, and another silence",
        ),
        pytest.param(
            {"silent_since": AT - 5 * DAY, "since": AT - HOUR},
            Expectation(AT + 25 * HOUR),
            id="it was resumed",
        ),
        pytest.param({"works": False}, Expectation(AT + 26 * HOUR), id="it is paused"),
    ],
)
def test_who_is_silent(changes: dict[str, Any], wanted: Expectation) -> None:
    assert verdict_of(expecting(**changes)) == wanted


def test_a_silence_as_it_is_told() -> None:
    notice = silence_notice(expecting(), AT - 26 * HOUR)
    assert [str(c) for c in notice.channels] == ["webhook:ops", "kafka:alerts"]
    owed = OwedNotice(
        UUID(int=9), TENANT, notice.kind, notice.about, notice.channels[0], notice.text,
        notice.data, 0, AT, 1,
    )  # fmt: skip
    told = event(owed)
    assert told["type"] == "tickrail.job.silent"
    assert told["subject"] == "job:00000000-0000-0000-0000-000000000007"
    assert told["text"] == (
        "nightly: no success since 2026-02-28T10:00:00Z; one is expected every 1d2h"
    )
    assert told["data"]["silence"] == {
        "since": "2026-02-28T10:00:00Z",
        "expect_success_every": "1d2h",
    }
    assert silence_notice(expecting(on_failures=None), AT).channels == []
