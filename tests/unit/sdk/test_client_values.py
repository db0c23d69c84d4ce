"""Requests as JSON, answers as values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from tickrail.sdk.client import UnexpectedAnswerError, encoding
from tickrail.sdk.client.models import (
    DeadLaunch,
    DeadLetter,
    Launch,
    Misfire,
    PausedNote,
    UndecodableMessage,
)
from tickrail_api.schemas.dead_letter import DEAD_LAUNCH, UNDECODABLE
from tickrail_api.schemas.launch import LAUNCH

BERLIN = timezone(timedelta(hours=1))
MISFIRE = {
    "policy": "fire_all", "grace": "1m", "max_count": 10, "max_age": "1d", "order": "oldest",
    "per_minute": 60,
}  # fmt: skip


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (datetime(2026, 3, 1, 2, tzinfo=BERLIN), "2026-03-01T01:00:00Z"),
        (datetime(2026, 3, 1, 2, 0, 0, 500, tzinfo=UTC), "2026-03-01T02:00:00.000500Z"),
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(0), "0s"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (("a", "b"), ["a", "b"]),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"at": "2026-01-01T00:00:00Z"}),
        (None, None),
        ("ä\u2028\x00", "ä\u2028\x00"),
    ],
)
def test_values_are_written_as_the_api_takes_them(value: Any, written: Any) -> None:
    assert json.loads(encoding.body_of({"x": value})) == {"x": written}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (datetime(2026, 3, 1, 2), "has no offset: use an aware datetime"),  # noqa: DTZ001 - refused
        (timedelta(seconds=-1), "not negative"),
        (float("nan"), "not JSON compliant"),
    ],
)
def test_values_that_mean_nothing_are_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encoding.body_of({"x": value})


def test_a_value_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no form in JSON"):
        encoding.body_of({"x": object()})


def test_keywords_become_members_and_pairs() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert encoding.members_of({"from_": 1, "per_minute": 2}) == {"from": 1, "per_minute": 2}
    query = {"from_": at, "state": ["a", "b"], "limit": 5, "dry_run": True, "tag": [], "to": None}
    assert list(encoding.query_of(query)) == [
        ("from", "2026-01-01T00:00:00Z"),
        ("state", "a"),
        ("state", "b"),
        ("limit", "5"),
        ("dry_run", "true"),
    ]


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("name:x", "/v1/jobs/name:x/pause"),
        ("a/b", "/v1/jobs/a%2Fb/pause"),
        ("ä ?#%", "/v1/jobs/%C3%A4%20%3F%23%25/pause"),
        ("...", "/v1/jobs/.../pause"),
    ],
)
def test_a_part_of_a_path_stays_one_part(part: str, path: str) -> None:
    assert encoding.path_of("/v1/jobs/{job}/pause", {"job": part}) == path


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_part_that_would_be_another_path_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=f"job is '{part}'; an id or a name is needed"):
        encoding.path_of("/v1/jobs/{job}", {"job": part})


def test_instants_are_aware_and_durations_timedeltas() -> None:
    launch = Launch.read(LAUNCH)
    assert launch.scheduled_at == datetime(2026, 3, 2, 1, tzinfo=UTC)
    assert launch.next_attempt_at is None
    assert (launch.job.name, launch.ended) == ("nightly-invoice-run", True)
    assert Misfire.read(MISFIRE).max_age == timedelta(days=1)


def test_what_is_not_known_is_kept() -> None:
    launch = Launch.read({**LAUNCH, "colour": "red", "state": "pondering"})
    assert launch.raw["colour"] == "red"
    assert (launch.state, launch.ended) == ("pondering", False)
    assert launch == Launch.read({**LAUNCH, "state": "pondering"})
    assert "colour" not in repr(launch)


def test_what_an_older_server_does_not_send_is_none() -> None:
    note = PausedNote.read({"by": "key:x", "at": "2026-01-01T00:00:00Z", "reason": ""})
    assert (note.until, note.launch) == (None, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attempt": "2"}, r"no Launch that this client can read: /attempt is '2' and no int"),
        ({"attempt": True}, "/attempt is True and no int"),
        ({"due_at": "soon"}, "/due_at is 'soon' and no instant"),
        ({"due_at": "2026-03-02T01:00:00"}, "/due_at is '2026-03-02T01:00:00' and no instant"),
        ({"job": []}, "/job is list and no object"),
        ({"job": {"id": "x", "version": 1}}, "/job has no name"),
        ({"result": {"outcome": 1, "code": None, "message": "", "body": ""}}, "/result/outcome"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match=said):
        Launch.read({**LAUNCH, **change})


def test_a_length_of_time_that_is_none_is_said_with_its_place() -> None:
    with pytest.raises(UnexpectedAnswerError, match="/grace is 'soon' and no length of time"):
        Misfire.read({**MISFIRE, "grace": "soon"})


def test_dead_letters_are_of_the_class_of_their_kind() -> None:
    launch, message = DeadLetter.read(DEAD_LAUNCH), DeadLetter.read(UNDECODABLE)
    assert isinstance(launch, DeadLaunch)
    assert isinstance(message, UndecodableMessage)
    newer = DeadLetter.read({**UNDECODABLE, "kind": "lost", "why": "x"})
    assert type(newer) is DeadLetter
    assert newer.raw["why"] == "x"
