"""Notices as they go out, the hooks in secrets, and what a job says of failures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.definition import Definition, completed, parse_definition
from tickrail.core.durations import parse_duration
from tickrail.core.errors import InvalidInputError
from tickrail.core.failure_notices import FailedLaunch, launch_notice
from tickrail.core.ids import JobId, LaunchId, TenantId
from tickrail.core.notices import SIGNING, Hook, event, parse_hook, retry_after
from tickrail.core.on_failures import Channel, ChannelKind, OnFailures, expected_every
from tickrail.core.ports_notice import GIVE_UP_AFTER, OwedNotice
from tickrail.core.states import State
from tickrail.core.target_webhook import Webhook, webhook_secrets
from tickrail.core.targets import parse_target

AT = datetime(2026, 3, 1, 2, 0, 0, tzinfo=UTC)
JOB = JobId(UUID(int=7))
TENANT = TenantId(UUID(int=1))
OPS = Channel(ChannelKind.WEBHOOK, "ops")
OWED = OwedNotice(
    UUID(int=9), TENANT, "launch.dead", "job:7", OPS, "it is dead", {"job": {"name": "a"}}, 0, AT, 1
)


def parsed(on_failures: object) -> Definition:
    document = {"name": "a", "target": {"noop": {}}, "on_failures": on_failures}
    return parse_definition(document, job=JOB, now=AT)


def test_what_a_job_says_is_canonical() -> None:
    job = parsed({"notify": ["kafka:t", "webhook:ops"]})
    assert job.on_failures == OnFailures(None, (Channel(ChannelKind.KAFKA, "t"), OPS))
    assert job.document()["on_failures"] == {
        "pause_after": None,
        "notify": ["kafka:t", "webhook:ops"],
        "expect_success_every": None,
    }
    assert parsed(job.document()["on_failures"]) == job
    assert job.secrets == [("/on_failures/notify/1", "ops")]
    assert job.topics == [("/on_failures/notify/0", "t")]


@pytest.mark.parametrize(("given", "shown"), [("26h", "1d2h"), ("PT90M", "1h30m"), ("1m", "1m")])
def test_an_expectation_is_a_duration(given: str, shown: str) -> None:
    job = parsed({"expect_success_every": given})
    assert job.document()["on_failures"]["expect_success_every"] == shown
    assert parsed(job.document()["on_failures"]) == job
    assert expected_every(job.document()["on_failures"]) == parse_duration(given)


def test_a_document_of_an_earlier_version_lacks_nothing() -> None:
    before = {"name": "a", "on_failures": {"pause_after": 3, "notify": []}}
    assert completed(before)["on_failures"]["expect_success_every"] is None
    assert completed({"name": "a"})["on_failures"] is None


@pytest.mark.parametrize("nothing", [None, {}, {"pause_after": None}, {"notify": []}])
def test_nothing_wanted_is_null(nothing: object) -> None:
    job = parsed(nothing)
    assert (job.on_failures, job.document()["on_failures"], job.secrets) == (None, None, [])


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        (7, "/on_failures"),
        ({"pause_after": 1001}, "/on_failures/pause_after"),
        ({"pause_after": True}, "/on_failures/pause_after"),
        ({"expect_success_every": 5}, "/on_failures/expect_success_every"),
        ({"expect_success_every": "59s"}, "/on_failures/expect_success_every"),
        ({"expect_success_every": "401d"}, "/on_failures/expect_success_every"),
        ({"expect_success_every": "daily"}, "/on_failures/expect_success_every"),
        ({"notify": {"webhook": "ops"}}, "/on_failures/notify"),
        ({"notify": ["webhook:Ops"]}, "/on_failures/notify/0"),
        ({"notify": ["webhook:"]}, "/on_failures/notify/0"),
        ({"notify": ["kafka:a b"]}, "/on_failures/notify/0"),
        ({"notify": ["kafka:__offsets"]}, "/on_failures/notify/0"),
        ({"notify": ["kafka:.."]}, "/on_failures/notify/0"),
        ({"notify": ["ops"]}, "/on_failures/notify/0"),
        ({"notify": [None]}, "/on_failures/notify/0"),
        ({"notify": ["kafka:t", "webhook:ops", "kafka:t"]}, "/on_failures/notify/2"),
        ({"notfy": []}, "/on_failures/notfy"),
    ],
)
def test_what_is_wrong_is_named(given: object, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        parsed(given)
    assert [p.pointer for p in raised.value.problems] == [pointer]


def test_a_hook_is_a_url_or_a_document() -> None:
    assert parse_hook(b" https://hooks.example.org/T0/B1\n") == Hook(
        "https://hooks.example.org/T0/B1"
    )
    whole = b'{"url": "https://a.example/x", "signing_secret": "whsec_aa", "headers": {"X-A": "b"}}'
    assert parse_hook(whole) == Hook("https://a.example/x", "whsec_aa", {"X-A": "b"})
    assert parse_hook(b'{"url": "https://a.example/x", "headers": null}').headers == {}


@pytest.mark.parametrize(
    "value",
    [
        "HUSH",
        "ftp://HUSH.example/",
        "https://HUSH:HUSH@example.org/",
        '{"url": "https://a.example/HUSH"',
        '{"url": "HUSH"}',
        '{"url": 7}',
        '{"signing_secret": "HUSH"}',
        '{"url": "https://a.example", "token": "HUSH"}',
        '{"url": "https://a.example", "signing_secret": ["HUSH"]}',
        '{"url": "https://a.example", "headers": {"X": "HUSH\\n"}}',
        '{"url": "https://a.example", "headers": ["HUSH"]}',
    ],
)
def test_what_is_no_hook_is_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match="the secret") as raised:
        parse_hook(value.encode())
    assert "HUSH" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__cause__ is None


def test_a_hook_as_a_target_holds_no_secret_but_its_url() -> None:
    hook = Hook("https://a.example/{{x}}?y={{", "whsec_aa", {"X-A": "b", "X-C": "d"})
    document = hook.target()
    target = parse_target(document)
    assert isinstance(target, Webhook)
    assert target.example_url == hook.url
    values = hook.secrets()
    named = {name for _, name in webhook_secrets(target)}
    assert named == {"header-0", "header-1", SIGNING}
    assert [values[n] for n in sorted(named)] == [b"b", b"d", b"whsec_aa"]
    assert values["url"] == hook.url.encode()
    assert "whsec_aa" not in str(document)


def test_a_notice_is_an_event_with_a_line_for_people() -> None:
    assert event(OWED) == {
        "specversion": "1.0",
        "id": str(UUID(int=9)),
        "source": f"/tenants/{TENANT}",
        "type": "tickrail.launch.dead",
        "subject": "job:7",
        "time": "2026-03-01T02:00:00Z",
        "datacontenttype": "application/json",
        "text": "it is dead",
        "data": {"job": {"name": "a"}, "suppressed": 0},
    }
    assert event(OWED._replace(attempts=9)) == event(OWED)
    more = event(OWED._replace(suppressed=12))
    assert more["text"] == "12 more notices in a minute; the last one: it is dead"
    assert more["data"]["suppressed"] == 12
    assert event(OWED._replace(suppressed=1))["text"].startswith("1 more notice in")


def failed(**changes: Any) -> FailedLaunch:
    whole = FailedLaunch(
        LaunchId(UUID(int=3)), AT, TENANT, JOB, "nightly", "manual:abc", State.DEAD, 5, 5,
        AT + timedelta(minutes=4), {"outcome": "http_500", "message": "HTTP 500", "body": "long"},
        {"pause_after": None, "notify": ["webhook:ops"]},
    )  # fmt: skip
    return whole._replace(**changes)


def test_a_launch_given_up_is_told_in_a_sentence_and_in_members() -> None:
    told = launch_notice(failed())
    assert told.text == (
        "nightly: the launch of 2026-03-01T02:00:00Z is dead after 5 failures: http_500: HTTP 500"
    )
    assert told.channels == [OPS]
    assert told.data["launch"] == {
        "id": str(UUID(int=3)), "scheduled_at": "2026-03-01T02:00:00Z", "origin": "manual",
        "state": "dead", "attempt": 5, "failures": 5, "finished_at": "2026-03-01T02:04:00Z",
        "result": {"outcome": "http_500", "code": None, "message": "HTTP 500"},
    }  # fmt: skip
    bare = launch_notice(failed(state=State.ABANDONED, failures=1, result=None))
    assert bare.text.endswith("is abandoned after 1 failure")
    assert bare.kind == "launch.abandoned"


@pytest.mark.parametrize(
    ("attempts", "spread", "asked", "seconds"),
    [
        (1, 0.5, None, 5.0),
        (2, 0.0, None, 7.5),
        (2, 1.0, None, 12.5),
        (40, 0.5, None, 3600.0),
        (1, 0.5, 90.0, 90.0),
        (1, 0.5, 1e9, 7200.0),
        (4, 0.5, 1.0, 40.0),
    ],
)
def test_a_delivery_that_failed_waits_longer_each_time(
    attempts: int, spread: float, asked: float | None, seconds: float
) -> None:
    notice = OWED._replace(attempts=attempts)
    found = retry_after(notice, timedelta(hours=1), spread, asked)
    assert found == timedelta(seconds=seconds)


def test_after_a_day_it_is_given_up() -> None:
    assert retry_after(OWED, GIVE_UP_AFTER, 0.5) is None
    assert retry_after(OWED, GIVE_UP_AFTER - timedelta(seconds=1), 0.5) is not None


def test_a_job_that_wants_other_things_is_another() -> None:
    assert (
        replace(parsed(None), on_failures=OnFailures(3)).document()
        == parsed({"pause_after": 3}).document()
    )
