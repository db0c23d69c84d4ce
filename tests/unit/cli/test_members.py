"""`tickrail system members | partitions | drain | undrain`."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

MEMBERS, PARTITIONS = "/v1/system/members", "/v1/system/partitions"
DRAIN = "/v1/system/members/s-1/drain"


def member(name: str = "s-1", partitions: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "identity": f"{name}-5f1c9a02",
        "state": "active",
        "weight": 1.0,
        "partitions": partitions,
        "since": "2026-03-01T12:00:00Z",
        "lease_remaining": "8s",
        "drain": None,
    } | fields


def drained(*items: Any, ignored: bool = False) -> Answer:
    return Answer(202, {"name": "s-1", "drains_ignored": ignored, "items": list(items)})


def listed(*items: Any, ignored: bool = False) -> Answer:
    body = {"items": list(items), "next_cursor": None, "drains_ignored": ignored}
    return Answer(body=body)


def test_members_as_a_table_and_whole_for_programs(tickrail: Tickrail, api: StubApi) -> None:
    by = {"since": "2026-03-01T12:30:00Z", "by": "key:abc"}
    gone = member("s-2", identity=None, state="absent", weight=None, since=None,
                  lease_remaining=None, drain=by)  # fmt: skip
    answer = listed(member(partitions=32), gone)
    api.on("GET", MEMBERS, answer)
    said = tickrail("--utc", "system", "members")
    first, second = said.out.splitlines()[2:4]
    assert first.split() == [
        "s-1", "active", "32", "1", "8s", "2026-03-01", "12:00:00Z", "s-1-5f1c9a02", "-", "-",
    ]  # fmt: skip
    assert second.split()[:6] == ["s-2", "absent", "0", "-", "-", "-"]
    assert second.split()[-3:] == ["2026-03-01", "12:30:00Z", "key:abc"]
    assert tickrail("system", "members", "--output", "json").json() == answer.body
    assert yaml.safe_load(tickrail("system", "members", "--output", "yaml").out) == answer.body


def test_no_member_and_ignored_drains_are_said(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", MEMBERS, listed())
    assert tickrail("system", "members").out == "No scheduler is present.\n"
    api.on("GET", MEMBERS, listed(member(state="drain_ignored"), ignored=True))
    said = tickrail("system", "members").out
    assert "drain_ignored" in said
    assert "every member is drained, so drains have no effect" in said


def test_partitions(tickrail: Tickrail, api: StubApi) -> None:
    rows = [
        {"partition": 0, "state": "owned", "owner": {"name": "s-1", "identity": "s-1-5f1c9a02"},
         "epoch": 41, "claimed_epoch": 41, "lease_remaining": "8s", "taken_by": "s-1-5f1c9a02",
         "taken_at": "2026-03-01T12:00:00Z", "tzdata": "2026c"},
        {"partition": 1, "state": "unowned", "owner": None, "epoch": 40, "claimed_epoch": None,
         "lease_remaining": None, "taken_by": "s-0-00000000", "taken_at": None, "tzdata": "2026c"},
    ]  # fmt: skip
    api.on("GET", PARTITIONS, Answer(body={"items": rows, "next_cursor": None}))
    first, second = tickrail("--utc", "system", "partitions").out.splitlines()[2:4]
    assert first.split()[:7] == ["0", "owned", "s-1", "s-1-5f1c9a02", "41", "41", "8s"]
    assert second.split()[:7] == ["1", "unowned", "-", "-", "40", "-", "-"]
    assert tickrail("system", "partitions", "--output", "json").json()["items"] == rows


def test_drain_waits_until_the_member_owns_nothing(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", DRAIN, drained(member(partitions=3)))
    other = member("s-2", partitions=64)
    api.on("GET", MEMBERS, listed(member(partitions=1), other), listed(member(), other))
    said = tickrail("system", "drain", "s-1")
    assert (said.code, said.out) == (0, "s-1 is drained and owns nothing.\n")
    assert said.err.splitlines() == ["s-1 owns 3 partitions still", "s-1 owns 1 partition still"]
    last = tickrail("system", "drain", "s-1", "--output", "json").json()
    assert last == {"name": "s-1", "drains_ignored": False, "items": [member()],
                    "next_cursor": None}  # fmt: skip


def test_a_member_that_ends_while_it_is_waited_for_owns_nothing(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on("POST", DRAIN, drained(member(partitions=3)))
    api.on("GET", MEMBERS, listed(member("s-2", 64)))
    assert tickrail("system", "drain", "s-1").code == 0


def test_without_a_wait_it_says_what_is_still_to_come(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", DRAIN, drained(member(partitions=3)))
    said = tickrail("system", "drain", "s-1", "--wait", "0s")
    assert (said.code, said.out) == (0, "s-1 is drained and hands over 3 partitions.\n")
    assert [a.method for a in api.asked] == ["POST"]


def test_a_wait_that_is_over_is_a_failure(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", DRAIN, drained(member(partitions=3)))
    api.on("GET", MEMBERS, listed(member(partitions=2)))
    said = tickrail("system", "drain", "s-1", "--wait", "10ms")
    assert said.code == 1
    assert "s-1 owns 2 partitions still after 0.01s; the drain goes on" in said.err


def test_a_drain_that_is_ignored_is_a_failure(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", DRAIN, drained(member(partitions=64), ignored=True))
    said = tickrail("system", "drain", "s-1")
    assert said.code == 1
    assert "every member is drained" in said.err
    assert [a.method for a in api.asked] == ["POST"]


def test_a_wrong_wait_is_wrong_use(tickrail: Tickrail) -> None:
    said = tickrail("system", "drain", "s-1", "--wait", "soon")
    assert said.code == 2
    assert "'soon' is not" in said.err


def test_undrain(tickrail: Tickrail, api: StubApi) -> None:
    api.on("DELETE", DRAIN, Answer(204))
    assert tickrail("system", "undrain", "s-1").out == "s-1 is not drained.\n"


@pytest.mark.parametrize(("command", "verb"), [("drain", "POST"), ("undrain", "DELETE")])
def test_an_unknown_member_is_refused_with_those_that_are_there(
    tickrail: Tickrail, api: StubApi, command: str, verb: str
) -> None:
    detail = "No scheduler 's-9' is a member; present: s-1, s-2."
    api.on(verb, "/v1/system/members/s-9/drain", problem(404, "not_found", detail))
    said = tickrail("system", command, "s-9")
    assert said.code == 1
    assert detail in said.err
