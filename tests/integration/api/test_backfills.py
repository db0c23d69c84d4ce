"""Backfills through the API: what is refused, what a dry run says, progress, cancel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.api import Caller, World, unused_id
from tests.support.stepped import Counted
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Epoch, Partition
from tickrail.engine.backfills import Backfills
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.session import DatabaseSettings

pytestmark = pytest.mark.integration

EPOCH = Epoch(7)
HOURLY = {"cron": "0 * * * *"}
HOUR = timedelta(hours=1)


class Owner:
    """The owner of all partitions, one pass at a time."""

    def __init__(self, world: World) -> None:
        self._database = world.database
        world.database.run("update partitions set epoch = 7")
        self.store = PostgresOwnerStore(DatabaseSettings(world.database.engine_url), SystemClock())
        self._backfills = Backfills(self.store, Counted())

    def turn(self) -> int:
        return len(self._backfills.run_once({Partition(p): EPOCH for p in range(4)}).inserted)

    def end(self, state: str = "succeeded") -> None:
        """End launches that are due."""
        self._database.run(
            "update launches set state = %s, phase = 3, finished_at = now() where phase = 1", state
        )


@pytest.fixture
def owner(world: World) -> Iterator[Owner]:
    made = Owner(world)
    yield made
    made.store.close()


@pytest.fixture
def day(world: World) -> datetime:
    """The beginning of the day before yesterday."""
    [(now,)] = world.database.rows("select now()")
    assert isinstance(now, datetime)
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=2)


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def of(day: datetime, hours: int = 3, **more: Any) -> dict[str, Any]:
    return {"from": text(day), "until": text(day + hours * HOUR), **more}


def test_a_backfill_from_its_beginning_to_its_end(
    world: World, acme: Caller, owner: Owner, day: datetime
) -> None:
    job = acme.create("a", schedule=HOURLY, overlap="allow", priority="high")
    answer = acme.call(
        "POST", "/v1/jobs/name:a/backfills", of(day, payload={"again": True}, reason="outage"),
        expect=202,
    )  # fmt: skip
    made = answer.json()
    assert answer.headers["Location"] == f"/v1/backfills/{made['id']}"
    assert made["job"] == {"id": job["id"], "name": "a"}
    wanted = {
        "state": "running", "total": 3, "launched": 0, "left_alone": 0, "remaining": 3,
        "order": "oldest", "existing": "leave", "max_open": 10, "max_count": None,
        "per_minute": None, "reason": "outage", "launches": {}, "finished_at": None,
        "from": text(day), "until": text(day + 3 * HOUR),
    }  # fmt: skip
    assert {k: made[k] for k in wanted} == wanted
    assert owner.turn() == 3
    path = f"/v1/backfills/{made['id']}"
    under_way = acme.get(path)
    assert (under_way["state"], under_way["launches"]) == ("running", {"due": 3})
    assert (under_way["launched"], under_way["remaining"]) == (3, 0)
    launches = acme.get("/v1/launches", job="name:a", origin="backfill")["items"]
    assert {x["scheduled_at"] for x in launches} == {text(day + n * HOUR) for n in range(3)}
    assert {(x["origin"], x["priority"]) for x in launches} == {("backfill", "low")}
    world.database.run("update launches set failures = 1 where scheduled_at = %s", day)
    assert acme.get(path)["launches"] == {"due": 2, "retrying": 1}
    owner.end()
    owner.turn()
    ended = acme.get(path)
    assert (ended["state"], ended["launches"]) == ("finished", {"succeeded": 3})
    assert ended["finished_at"] is not None
    assert acme.get("/v1/jobs/name:a/backfills")["items"] == [ended]
    assert acme.get("/v1/jobs/name:a")["next_run_at"] == job["next_run_at"]
    rows = world.database.rows(
        "select action, after ->> 'total' from audit_log where subject = %s",
        f"backfill:{made['id']}",
    )
    assert rows == [("backfill.create", "3")]


def test_a_dry_run_saves_nothing(acme: Caller, owner: Owner, day: datetime) -> None:
    acme.create("a", schedule=HOURLY, overlap="allow")
    path = "/v1/jobs/name:a/backfills"
    acme.post(path, of(day, max_count=1), expect=202)
    assert owner.turn() == 1
    said = acme.post(path, of(day, dry_run=True, order="newest"), expect=200)
    assert (said["total"], said["to_launch"]) == (3, 2)
    assert (said["first"], said["last"]) == (text(day), text(day + 2 * HOUR))
    assert [x["at"] for x in said["items"]] == [text(day + n * HOUR) for n in (2, 1, 0)]
    [launch] = acme.get("/v1/launches")["items"]
    there = {"id": launch["id"], "state": "due"}
    assert [x["launch"] for x in said["items"]] == [None, None, there]
    for more, count in (({"existing": "launch"}, 3), ({"max_count": 1}, 1)):
        assert acme.post(path, of(day, dry_run=True, **more), expect=200)["to_launch"] == count
    assert len(acme.get(path)["items"]) == 1
    assert owner.turn() == 0
    nothing = {"from": text(day + HOUR / 2), "until": text(day + HOUR), "dry_run": True}
    said = acme.post(path, nothing, expect=200)
    assert (said["total"], said["to_launch"], said["first"], said["items"]) == (0, 0, None, [])
    acme.create("often", schedule={"cron": "* * * * * *"})
    much = of(day, 24, dry_run=True, max_count=5)
    said = acme.post("/v1/jobs/name:often/backfills", much, expect=200)
    assert (said["total"], said["to_launch"], len(said["items"])) == (86_400, None, 100)


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"from": None}, "/from", "is missing"),
        ({"until": None}, "/until", "is missing"),
        ({"from": "yesterday"}, "/from", "is 'yesterday'"),
        ({"from": "2026-03-01T00:00:00"}, "/from", "is '2026-03-01T00:00:00'"),
        ({"until": "+1h"}, "/until", "is in the future"),
        ({"from": "-40d"}, "/from", "is too old: launches are kept for 30 days"),
        ({"from": "-30d"}, "/from", "is too old: launches are kept for 30 days"),
        ({"until": "-60h", "from": "-50h"}, "/until", "is not after from"),
        ({"until": "-50h", "from": "-50h"}, "/until", "is not after from"),
        ({"order": "random"}, "/order", "is 'random'"),
        ({"existing": "skip"}, "/existing", "is 'skip'"),
        ({"per_minute": 0}, "/per_minute", "is 0"),
        ({"per_minute": "fast"}, "/per_minute", "is a string"),
        ({"max_count": -1}, "/max_count", "is -1"),
        ({"max_open": 0}, "/max_open", "is 0"),
        ({"max_open": 2}, "/max_open", "is 2, and the job's overlap policy is skip"),
        ({"dry_run": "yes"}, "/dry_run", "is a string"),
        ({"reason": 5}, "/reason", "is a number"),
        ({"payload": "\x00"}, "/payload", "contains the character U+0000"),
        ({"untill": "x"}, "/untill", "is not a known field"),
    ],
)
def test_what_is_refused(
    acme: Caller, day: datetime, change: dict[str, Any], pointer: str, message: str
) -> None:
    acme.create("a", schedule=HOURLY)
    now = day + timedelta(days=2)
    units = {"h": HOUR, "d": 24 * HOUR}
    document = of(day)
    for name, value in change.items():
        if value is None:
            del document[name]
        elif isinstance(value, str) and value[0] in "+-":
            # An hour from now is behind the end of this day at most by that hour.
            base = now + 24 * HOUR if value[0] == "+" else now
            document[name] = text(base + int(value[:-1]) * units[value[-1]])
        else:
            document[name] = value
    answer = acme.post("/v1/jobs/name:a/backfills", document, expect=422)
    found = [(e["pointer"], e["message"]) for e in answer["errors"]]
    assert any(p == pointer and m.startswith(message) for p, m in found), found
    assert acme.get("/v1/jobs/name:a/backfills")["items"] == []


def test_jobs_without_slots_in_the_past_and_too_many_slots_are_refused(
    acme: Caller, day: datetime
) -> None:
    acme.create("hand")
    acme.create("seconds", schedule={"cron": "* * * * * *"})
    said = acme.post("/v1/jobs/name:hand/backfills", of(day), expect=422)
    assert [e["pointer"] for e in said["errors"]] == ["/schedule"]
    path = "/v1/jobs/name:seconds/backfills"
    said = acme.post(path, of(day, 48), expect=422)
    [error] = said["errors"]
    assert error["pointer"] == "/max_count"
    assert "172800 slots" in error["message"]
    acme.post(path, of(day, 48, max_count=5), expect=202)


def test_states_of_the_job(acme: Caller, owner: Owner, day: datetime) -> None:
    job = acme.create("a", schedule=HOURLY)
    acme.post("/v1/jobs/name:a/pause", expect=200)
    acme.post("/v1/jobs/name:a/backfills", of(day, 1), expect=202)
    assert owner.turn() == 1
    made = acme.post("/v1/jobs/name:a/backfills", of(day + HOUR), expect=202)
    acme.delete("/v1/jobs/name:a")
    acme.post(f"/v1/jobs/{job['id']}/backfills", of(day), expect=409)
    owner.turn()
    assert acme.get(f"/v1/backfills/{made['id']}")["state"] == "cancelled"
    acme.post("/v1/jobs/name:a/backfills", of(day), expect=404)


def test_ten_run_at_once_at_most(acme: Caller, owner: Owner, day: datetime) -> None:
    acme.create("a", schedule=HOURLY)
    made = [
        acme.post("/v1/jobs/name:a/backfills", of(day + n * HOUR, 1), expect=202)["id"]
        for n in range(10)
    ]
    path = "/v1/jobs/name:a/backfills"
    assert "10 backfills" in acme.post(path, of(day), expect=409)["detail"]
    acme.post(path, of(day, dry_run=True), expect=200)
    acme.post(f"/v1/backfills/{made[0]}/cancel", expect=202)
    acme.post(path, of(day), expect=202)
    listed = [x["id"] for x in acme.every(path, limit=3)]
    assert (len(listed), listed[1:]) == (11, made[::-1])
    acme.get(path, cursor="nonsense", expect=422)
    assert owner.turn() == 1


@pytest.mark.parametrize("in_flight", ["finish", "cancel"])
def test_cancel(world: World, acme: Caller, owner: Owner, day: datetime, in_flight: str) -> None:
    acme.create("a", schedule=HOURLY, overlap="allow")
    made = acme.post("/v1/jobs/name:a/backfills", of(day, 9, max_open=4), expect=202)
    assert owner.turn() == 4
    world.database.run(
        "update launches set state = 'running', phase = 2, claim = 1,"
        " claim_expires_at = now() + interval '1 hour', started_at = now()"
        " where scheduled_at = %s",
        day,
    )
    path = f"/v1/backfills/{made['id']}/cancel"
    said = acme.post(path, {"in_flight": in_flight}, expect=202)
    assert (said["state"], said["remaining"]) == ("cancelled", 0)
    assert said["launches"] == {"running": 1, "cancelled": 3}
    asked = world.database.rows("select cancel_requested from launches where state = 'running'")
    assert asked == [(in_flight == "cancel",)]
    owner.end()
    assert owner.turn() == 0
    assert acme.post(path, expect=202)["finished_at"] == said["finished_at"]
    acme.post(path, {"in_flight": "stop"}, expect=422)
    acme.post(f"/v1/backfills/{unused_id()}/cancel", expect=404)


def test_one_that_has_finished_cannot_be_cancelled(
    acme: Caller, owner: Owner, day: datetime
) -> None:
    acme.create("a", schedule=HOURLY)
    made = acme.post("/v1/jobs/name:a/backfills", of(day, 1), expect=202)
    owner.turn()
    owner.end("dead")
    owner.turn()
    said = acme.post(f"/v1/backfills/{made['id']}/cancel", expect=409)
    assert said["detail"] == "The backfill has finished."


def test_the_same_request_again_is_one_backfill(acme: Caller, day: datetime) -> None:
    acme.create("a", schedule=HOURLY)
    path = "/v1/jobs/name:a/backfills"
    first = acme.post(path, of(day), expect=202, idempotency_key="k")
    assert acme.post(path, of(day), expect=202, idempotency_key="k") == first
    assert len(acme.get(path)["items"]) == 1
    acme.call("POST", path, of(day), headers={"If-Match": '"9"'}, expect=412)


def test_a_calendar_leaves_out_slots_of_a_backfill_too(
    acme: Caller, owner: Owner, day: datetime
) -> None:
    calendar = {"windows": [{"from": "01:00", "to": "03:00"}]}
    acme.put("/v1/calendars/night", calendar, expect=201)
    acme.create("a", schedule=HOURLY, overlap="allow", calendars={"exclude": ["night"]})
    path = "/v1/jobs/name:a/backfills"
    said = acme.post(path, of(day, 5, dry_run=True), expect=200)
    assert [x["at"] for x in said["items"]] == [text(day + n * HOUR) for n in (0, 3, 4)]
    assert acme.post(path, of(day, 5), expect=202)["total"] == 3
    assert owner.turn() == 3


def test_a_cancel_falls_before_or_after_a_pass_never_inside(
    world: World, acme: Caller, owner: Owner, day: datetime
) -> None:
    """Passes go on all the time; once a cancel is answered nothing of it is due or becomes so."""
    acme.create("a", schedule={"cron": "* * * * *"}, overlap="allow")
    over = threading.Event()

    def passes() -> None:
        while not over.is_set():
            # As the loop does: a machine that stands still for 2 s costs a connection.
            with suppress(UnavailableError):
                owner.turn()

    thread = threading.Thread(target=passes)
    thread.start()
    try:
        for _ in range(10):
            document = of(day, 24, max_open=1000, existing="launch")
            made = acme.post("/v1/jobs/name:a/backfills", document, expect=202)
            path = f"/v1/backfills/{made['id']}"
            until(lambda path=path: acme.get(path)["launched"], 20)
            said = acme.post(f"{path}/cancel", expect=202)
            again = acme.get(path)
            assert said["launches"] == again["launches"] == {"cancelled": again["launched"]}
    finally:
        over.set()
        thread.join(30)
    [(left,)] = world.database.rows("select count(*) from launches where phase < 3")
    assert left == 0
