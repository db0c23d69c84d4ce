from __future__ import annotations

from typing import Any

from tests.support.stub_api import Answer, StubApi
from tests.unit.cli.conftest import Tickrail

SYSTEM = "/v1/system/tzdata"
MOVE: dict[str, Any] = {
    "changed_at": "2026-03-01T12:00:00Z",
    "job": {"id": "01914b6e-0000-7000-8000-000000000001", "name": "nightly"},
    "tenant": "acme",
    "time_zones": ["Africa/Cairo"],
    "versions": {"before": "2026b", "after": "2026c"},
    "next_run_at": {"before": "2026-03-02T01:00:00Z", "after": "2026-03-02T00:00:00Z"},
}
COUNTS = {"2026b": 1, "2026c": 63}


def answer(*items: Any, cursor: str | None = None) -> Answer:
    body = {"version": "2026c", "partitions": COUNTS, "items": list(items), "next_cursor": cursor}
    return Answer(body=body)


def test_zone_data_in_use_and_what_moved(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", SYSTEM, answer(MOVE))
    said = tickrail("--utc", "system", "tzdata")
    assert said.out.splitlines()[0] == (
        "The API has zone data 2026c. Next runs are by 2026b in 1 partition, 2026c in 63"
        " partitions."
    )
    words = ("acme", "nightly", "Africa/Cairo", "2026b", "2026-03-02 01:00:00Z", "00:00:00Z")
    assert [w for w in words if w not in said.out] == []


def test_no_move_is_said_too(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", SYSTEM, answer())
    assert "No change of zone data has moved a next run." in tickrail("system", "tzdata").out


def test_pages_are_read_up_to_the_limit_and_programs_get_the_whole(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on("GET", SYSTEM, answer(MOVE, cursor="next"), answer(MOVE, MOVE, cursor="more"))
    said = tickrail("system", "tzdata", "--limit", "3", "--output", "json").json()
    assert (said["partitions"], len(said["items"]), said["next_cursor"]) == (COUNTS, 3, "more")
    assert [dict(a.query) for a in api.asked] == [
        {"limit": ["3"]},
        {"limit": ["2"], "cursor": ["next"]},
    ]
