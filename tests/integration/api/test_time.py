"""Where time matters: edits, pauses, resumes, the ledger, the preview; at instants of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.support.api import Caller, World, webhook

from tickrail.core.ids import TenantId
from tickrail.core.ports_api import JobRecord
from tickrail.store.engine import ApiTransaction
from tickrail.store.tenancy import Caller as Who
from tickrail_api.call import Parts

pytestmark = pytest.mark.integration


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


class Office:
    """The use cases of one tenant, called at instants of the test."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.parts: Parts = world.app.state.parts

    @contextmanager
    def when(self, text: str) -> Iterator[ApiTransaction]:
        """A transaction whose present instant is this one."""
        tenant = TenantId(UUID(self.world.tenant_id("acme")))
        with self.parts.database.tenant(tenant, Who("test")) as tx:
            tx.now = tx.base.now = at(text)
            yield tx

    def put(self, text: str, **fields: object) -> JobRecord:
        """The job `a` with these fields, accepted at an instant."""
        with self.when(text) as tx:
            return self.parts.jobs.put(tx, "a", webhook("a", **fields))[0]

    def fired(self, last_slot: str, next_run: str) -> None:
        """As if the tick had launched the slot before."""
        self.world.database.run(
            "update jobs set last_slot_at = %s, next_run_at = %s, launched = launched + 1",
            at(last_slot),
            at(next_run),
        )

    def skips(self) -> list[tuple[object, ...]]:
        return self.world.database.rows(
            "select reason, scheduled_at, last_at, count from skips order by scheduled_at"
        )


@pytest.fixture
def office(world: World) -> Office:
    return Office(world)


def test_an_edit_is_not_a_missed_run(office: Office) -> None:
    office.put("2026-02-01T00:00:00Z", schedule={"cron": "0 21 * * tue,fri"})
    office.fired("2026-02-03T21:00:00Z", "2026-02-06T21:00:00Z")
    job = office.put("2026-02-06T02:10:00Z", schedule={"cron": "0 23 * * wed,sun"})
    assert job.next_run_at == at("2026-02-08T23:00:00Z")
    assert office.skips() == []


def test_an_edit_to_a_more_frequent_schedule_counts_at_once(office: Office) -> None:
    office.put("2026-01-01T00:00:30Z", schedule={"cron": "0 0 * * *"})
    job = office.put("2026-01-01T10:02:00Z", schedule={"cron": "*/5 * * * *"})
    assert job.next_run_at == at("2026-01-01T10:05:00Z")


def test_an_edit_records_the_old_slots_that_it_passes_over(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"cron": "0 * * * *"})
    office.fired("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z")
    job = office.put("2026-01-01T12:30:00Z", schedule={"cron": "15 * * * *"})
    assert job.next_run_at == at("2026-01-01T13:15:00Z")
    assert office.skips() == [
        ("skipped_by_hand", at("2026-01-01T10:00:00Z"), at("2026-01-01T12:00:00Z"), 3)
    ]


def test_an_edit_of_something_else_moves_no_slot(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"every": "1h"})
    office.fired("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z")
    job = office.put("2026-01-01T12:30:00Z", schedule={"every": "1h"}, overlap="allow")
    assert (job.version, job.next_run_at) == (2, at("2026-01-01T10:00:00Z"))
    assert office.skips() == []


def test_a_finished_job_lives_again_by_a_new_schedule(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"at": "2026-01-02T00:00:00Z"})
    office.world.database.run("update jobs set state = 'finished', next_run_at = null")
    same = office.put("2026-01-03T00:00:00Z", schedule={"at": "2026-01-02T00:00:00Z"})
    assert (same.version, same.state) == (1, "finished")
    job = office.put("2026-01-03T00:00:00Z", schedule={"at": "2026-01-04T00:00:00Z"})
    assert (job.state, job.next_run_at) == ("active", at("2026-01-04T00:00:00Z"))


def test_no_launch_is_left_to_make(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"every": "1h"}, max_launches=3)
    office.world.database.run("update jobs set launched = 2")
    job = office.put("2026-01-01T03:30:00Z", schedule={"every": "1h"}, max_launches=2)
    assert (job.state, job.next_run_at) == ("finished", None)


def test_a_schedule_taken_away_leaves_a_job_for_the_hand(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"every": "1h"})
    job = office.put("2026-01-01T00:30:00Z")
    assert (job.state, job.next_run_at) == ("active", None)


def test_resume_records_what_passed(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"cron": "0 * * * *"})
    with office.when("2026-01-01T00:30:00Z") as tx:
        paused = office.parts.pauses.pause(tx, "a", {"reason": "works"})
    assert (paused.state, paused.next_run_at) == ("paused", at("2026-01-01T01:00:00Z"))
    with office.when("2026-01-01T05:30:00Z") as tx:
        job = office.parts.pauses.resume(tx, "a", None)
    assert (job.state, job.paused) == ("active", None)
    assert job.next_run_at == at("2026-01-01T06:00:00Z")
    assert office.skips() == [("paused", at("2026-01-01T01:00:00Z"), at("2026-01-01T05:00:00Z"), 5)]


def test_resume_may_leave_what_passed_to_the_misfire_policy(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"cron": "0 * * * *"})
    with office.when("2026-01-01T00:30:00Z") as tx:
        office.parts.pauses.pause(tx, "a", None)
    with office.when("2026-01-01T05:30:00Z") as tx:
        job = office.parts.pauses.resume(tx, "a", {"catch_up": "policy"})
    assert job.next_run_at == at("2026-01-01T01:00:00Z")
    assert office.skips() == []


def test_resume_after_the_last_slot_finishes(office: Office) -> None:
    office.put(
        "2026-01-01T00:00:00Z", schedule={"cron": "0 * * * *"}, ends_at="2026-01-01T02:00:00Z"
    )
    with office.when("2026-01-01T00:30:00Z") as tx:
        office.parts.pauses.pause(tx, "a", None)
    with office.when("2026-01-01T05:30:00Z") as tx:
        job = office.parts.pauses.resume(tx, "a", None)
    assert (job.state, job.next_run_at) == ("finished", None)
    assert office.skips()[0][3] == 2


def test_pause_over_http(world: World, acme: Caller) -> None:
    acme.create("a", schedule={"every": "1h"})
    until = "2099-01-01T00:00:00Z"
    job = acme.post("/v1/jobs/name:a/pause", {"until": until, "reason": "works"}, expect=200)
    assert (job["state"], job["version"]) == ("paused", 1)
    assert (job["paused"]["until"], job["paused"]["reason"]) == (until, "works")
    assert job["paused"]["by"] == f"key:{world.keys['acme'].key_id}"
    assert world.database.rows("select resume_at from jobs") == [(at(until),)]
    again = acme.post("/v1/jobs/name:a/pause", expect=200)
    assert again["paused"]["until"] is None
    assert acme.post("/v1/jobs/name:a/resume", {"catch_up": "none"}, expect=200)["paused"] is None
    acme.post("/v1/jobs/name:a/resume", expect=200)
    for document, pointer in (
        ({"until": "2020-01-01T00:00:00Z"}, "/until"),
        ({"until": "soon"}, "/until"),
        ({"in_flight": "kill"}, "/in_flight"),
        ({"x": 1}, "/x"),
    ):
        refused = acme.post("/v1/jobs/name:a/pause", document, expect=422)
        assert [e["pointer"] for e in refused["errors"]] == [pointer]
    refused = acme.post("/v1/jobs/name:a/resume", {"catch_up": "all"}, expect=422)
    assert [e["pointer"] for e in refused["errors"]] == ["/catch_up"]


def test_a_pause_may_cancel_what_is_open(world: World, acme: Caller) -> None:
    acme.create("a", overlap="allow")
    waiting, running = (acme.post("/v1/jobs/name:a/trigger", expect=201)["id"] for _ in "12")
    world.database.run("update launches set state='running', phase=2 where id = %s", running)
    acme.post("/v1/jobs/name:a/pause", {"in_flight": "finish"}, expect=200)
    assert acme.get(f"/v1/launches/{waiting}")["state"] == "due"
    acme.post("/v1/jobs/name:a/pause", {"in_flight": "cancel"}, expect=200)
    assert acme.get(f"/v1/launches/{waiting}")["state"] == "cancelled"
    assert acme.get(f"/v1/launches/{running}")["cancel_requested"] is True


def test_the_ledger_has_one_row_for_each_slot(world: World, acme: Caller) -> None:
    acme.create("a", schedule={"every": "1h", "anchor": "2026-01-01T00:00:00Z"})
    world.database.run("select make_day('2026-02-01')")
    world.database.run(
        "insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue,"
        " priority, origin, state, phase, max_attempts, rerun, visibility, due_at, epoch)"
        " select gen_random_uuid(), '2026-02-01T01:00:00Z', tenant_id, id, 1, partition, 'default',"
        " 1, 'schedule', 'succeeded', 3, 5, true, 30, now(), 1 from jobs"
    )
    world.database.run(
        "insert into skips (job_id, scheduled_at, last_at, tenant_id, count, reason)"
        " select id, '2026-02-01T02:00:00Z', '2026-02-01T04:00:00Z', tenant_id, 3, 'misfire'"
        " from jobs"
    )
    acme.post("/v1/jobs/name:a/trigger", expect=201)
    path, day = "/v1/jobs/name:a/slots", {"from": "2026-02-01T00:00:00Z"}
    for sort in ("at", "-at"):
        past = acme.every(path, limit=2, sort=sort, to="2026-02-02T00:00:00Z", **day)
        rows = [(s["at"], s["state"], s["reason"]) for s in past]
        wanted = [
            ("2026-02-01T01:00:00Z", "launched", None),
            ("2026-02-01T02:00:00Z", "skipped", "misfire"),
            ("2026-02-01T03:00:00Z", "skipped", "misfire"),
            ("2026-02-01T04:00:00Z", "skipped", "misfire"),
        ]
        assert rows == (wanted if sort == "at" else wanted[::-1])
    first = acme.get(path, sort="at", limit=1)["items"][0]
    assert first["launch"]["state"] == "succeeded"
    latest = acme.get(path, limit=20)["items"]
    coming = [s["at"] for s in latest if s["state"] == "upcoming"]
    assert len(coming) == 10
    assert coming == sorted(coming, reverse=True)
    assert acme.get("/v1/jobs/name:a")["next_run_at"] == coming[-1]


def test_upcoming_says_what_happens_at_a_clock_change(acme: Caller) -> None:
    berlin = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}
    acme.create("a", schedule=berlin)
    found = acme.get("/v1/jobs/name:a/upcoming", n=2, after="2026-03-28T12:00:00Z")["items"]
    assert found == [
        {
            "at": "2026-03-29T01:00:00Z",
            "local": "2026-03-29T03:00:00+02:00",
            "notes": ["moved_by_gap"],
        },
        {"at": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00", "notes": []},
    ]
    asked = {"schedule": berlin, "n": 2, "after": "2026-03-28T12:00:00Z"}
    assert acme.post("/v1/schedules/preview", asked, expect=200)["items"] == found


def test_the_preview_compares_with_a_job(acme: Caller) -> None:
    acme.create("a", schedule={"cron": "0 2 * * *"})
    asked = {
        "schedule": {"cron": "0 2,3 * * *"}, "n": 3, "after": "2026-01-01T00:00:00Z",
        "job": "name:a",
    }  # fmt: skip
    found = acme.post("/v1/schedules/preview", asked, expect=200)
    assert found["difference"] == {"added": ["2026-01-01T03:00:00Z"], "removed": []}
    assert found["words"]
    lint = acme.post("/v1/schedules/preview", {"schedule": {"cron": "* 3 * * *"}}, expect=200)
    assert lint["lint"][0]["code"]
    by_hand = acme.post("/v1/schedules/preview", {"schedule": None}, expect=200)
    assert by_hand["items"] == []
    for document, pointer in (
        ({"schedule": {"cron": "x"}}, "/schedule/cron"),
        ({"schedule": None, "n": 0}, "/n"),
        ({"schedule": None, "job": "a"}, "/job"),
        ({"schedul": None}, "/schedul"),
        (
            {
                "schedule": {"cron": "0 2 * * *"},
                "starts_at": "2026-01-02T00:00:00Z",
                "ends_at": "2026-01-02T00:00:00Z",
            },
            "/ends_at",
        ),
    ):
        refused = acme.post("/v1/schedules/preview", document, expect=422)
        assert [e["pointer"] for e in refused["errors"]] == [pointer]


def test_the_preview_of_a_job_alone_is_that_of_its_own_schedule(acme: Caller) -> None:
    acme.create("a", schedule={"cron": "0 2 * * *", "time_zone": "Europe/Berlin"}, payload=1)
    asked = {"job": "name:a", "after": "2026-01-01T00:00:00Z", "n": 2}
    found = acme.post("/v1/schedules/preview", asked, expect=200)
    assert [x["at"] for x in found["items"]] == ["2026-01-01T01:00:00Z", "2026-01-02T01:00:00Z"]
    assert found["difference"] == {"added": [], "removed": []}
    assert found["schedule"]["time_zone"] == "Europe/Berlin"
    shorter = {**asked, "ends_at": "2026-01-01T12:00:00Z"}
    found = acme.post("/v1/schedules/preview", shorter, expect=200)
    assert found["difference"] == {"added": [], "removed": ["2026-01-02T01:00:00Z"]}
    found = acme.post("/v1/schedules/preview", {**asked, "schedule": None}, expect=200)
    assert (found["words"], len(found["difference"]["removed"])) == ("By hand only", 2)


@pytest.mark.parametrize(
    ("document", "until"),
    [
        ({"schedule": {"cron": "0 0 0 1 1 ? 2020"}}, ""),
        ({"schedule": {"at": "2020-01-01T00:00:00Z"}}, ""),
        (
            {"schedule": {"cron": "0 2 * * *"}, "ends_at": "2026-01-01T00:30:00Z"},
            " and until 2026-01-01T00:30:00Z",
        ),
    ],
    ids=["a past year", "a past instant", "no slot before the end"],
)
def test_the_preview_says_that_there_is_no_run(
    acme: Caller, document: dict[str, object], until: str
) -> None:
    asked = {**document, "after": "2026-01-01T00:00:00Z"}
    found = acme.post("/v1/schedules/preview", asked, expect=200)
    assert found["items"] == []
    [warning] = [w for w in found["lint"] if w["code"] == "no_run"]
    assert warning["message"] == f"has no run after 2026-01-01T00:00:00Z{until}"


def test_a_range_of_slots_that_ends_before_it_begins_is_refused(acme: Caller) -> None:
    acme.create("a", schedule={"cron": "0 2 * * *"})
    edges = {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    refused = acme.get("/v1/jobs/name:a/slots", **edges, expect=422)
    assert [e["message"] for e in refused["errors"]] == ["is before from"]
    assert "to" in refused["errors"][0]["pointer"]
    same = {"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    assert acme.get("/v1/jobs/name:a/slots", **same)["items"] == []


def test_an_edit_under_a_clock_that_was_set_back_plans_nothing_twice(office: Office) -> None:
    office.put("2026-01-01T00:00:00Z", schedule={"cron": "0 * * * *"})
    office.fired("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z")
    job = office.put("2026-01-01T07:20:00Z", schedule={"cron": "*/15 * * * *"})
    assert job.next_run_at == at("2026-01-01T09:15:00Z")
    assert office.skips() == []
