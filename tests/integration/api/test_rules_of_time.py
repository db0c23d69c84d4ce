"""What a job's owner says of its slots: calendars, skips by hand, bounds of a resume; by use cases
at instants of the test, with the real planner and the real store between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.api import Caller, World, webhook
from tests.support.store_bed import OWNED, PostgresBed

from tickrail.core.clock import SystemClock
from tickrail.core.ids import TenantId
from tickrail.core.ports_api import JobRecord
from tickrail.engine.job_rules import plan_of, require
from tickrail.engine.ledger import Kind, LedgerRequest, job_slots, slots
from tickrail.engine.tick import JobPlanner
from tickrail.store.engine import ApiTransaction
from tickrail.store.tenancy import Caller as Who
from tickrail_api.call import Parts

pytestmark = pytest.mark.integration
MINUTE = timedelta(minutes=1)


class Site:
    """One tenant's use cases and the owner's tick on one database."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.parts: Parts = world.app.state.parts
        self.bed = PostgresBed(world.database)
        self.owner = self.bed.owner()
        self.planner = JobPlanner()
        self.now = SystemClock().now().replace(second=0, microsecond=0) - timedelta(hours=6)

    @contextmanager
    def at(self, minute: float) -> Iterator[ApiTransaction]:
        """A transaction whose present instant is so many minutes after the beginning."""
        tenant = TenantId(UUID(self.world.tenant_id("acme")))
        with self.parts.database.tenant(tenant, Who("test")) as tx:
            tx.now = tx.base.now = self.now + minute * MINUTE
            yield tx

    def put(self, minute: float, **fields: Any) -> JobRecord:
        with self.at(minute) as tx:
            return self.parts.jobs.put(tx, "a", webhook("a", overlap="allow", **fields))[0]

    def tick(self) -> None:
        """The owner plans what is due now, by the database's clock."""
        while self.owner.tick(OWNED, 100, self.planner).full:
            pass

    def ledger(self) -> list[tuple[float, str, str | None]]:
        """Minutes after the beginning, kind and reason of each row, the oldest first."""
        request = LedgerRequest(None, self.now + timedelta(hours=7), ascending=True, limit=500)
        with self.parts.database.tenant(
            TenantId(UUID(self.world.tenant_id("acme"))), Who("test")
        ) as tx:
            rows, more = slots(tx, require(tx, "a"), request)
            assert not more
            return [
                ((r.at - self.now) / MINUTE, r.kind.name.lower(), r.reason)
                for r in rows
                if r.kind is not Kind.UPCOMING
            ]


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    made = Site(world)
    yield made
    made.bed.close()


def ranges(*pairs: tuple[datetime, datetime]) -> dict[str, Any]:
    """A calendar of single events."""
    return {
        "events": [
            {"summary": "closed", "start": a.isoformat(), "end": b.isoformat()} for a, b in pairs
        ]
    }


def test_each_slot_of_a_job_with_a_calendar_is_launched_or_recorded(site: Site) -> None:
    closed = ranges((site.now + 60 * MINUTE, site.now + 125 * MINUTE))
    site.world.acme.put("/v1/calendars/closed", closed, expect=201)
    site.put(
        0.5,
        schedule={"every": "10m", "anchor": site.now.isoformat()},
        calendars={"exclude": ["closed"]},
        misfire={"policy": "fire_all", "max_count": 1000, "max_age": "2d", "per_minute": 100_000},
    )
    site.tick()
    found = site.ledger()
    passed = list(range(10, 361, 10))
    assert [m for m, _, _ in found] == passed[: len(found)]
    assert len(found) >= 35
    for minute, kind, reason in found:
        inside = 60 <= minute < 125
        assert (kind, reason) == (("skipped", "excluded") if inside else ("launched", None))


def test_what_a_calendar_left_out_is_in_the_ledger_before_the_next_slot(site: Site) -> None:
    closed = ranges((site.now + 60 * MINUTE, site.now + timedelta(hours=9)))
    site.world.acme.put("/v1/calendars/closed", closed, expect=201)
    job = site.put(
        0.5,
        schedule={"every": "30m", "anchor": site.now.isoformat()},
        calendars={"exclude": ["closed"]},
        misfire={"policy": "skip"},
    )
    assert job.next_run_at == site.now + 30 * MINUTE
    site.tick()
    found = site.ledger()
    assert found[0] == (30, "skipped", "misfire")
    assert found[1:12] == [(m, "skipped", "excluded") for m in range(60, 390, 30)]


def test_slots_move_to_the_first_allowed_instant(site: Site) -> None:
    closed = ranges((site.now + 20 * MINUTE, site.now + 47 * MINUTE))
    site.world.acme.put("/v1/calendars/closed", closed, expect=201)
    site.put(
        0.5,
        schedule={"every": "10m", "anchor": site.now.isoformat()},
        calendars={"exclude": ["closed"], "on_excluded": "next_allowed"},
        ends_at=(site.now + 60 * MINUTE).isoformat(),
        misfire={"policy": "fire_all", "max_count": 100, "max_age": "2d"},
    )
    site.tick()
    assert [(m, kind) for m, kind, _ in site.ledger()] == [
        (m, "launched") for m in (10, 47, 50, 60)
    ]


def test_slots_to_be_left_out_by_hand_are_used_up_one_by_one(site: Site) -> None:
    site.put(
        0.5,
        schedule={"every": "10m", "anchor": site.now.isoformat()},
        ends_at=(site.now + 60 * MINUTE).isoformat(),
        misfire={"policy": "fire_all", "max_count": 100, "max_age": "2d"},
    )
    with site.at(1) as tx:
        job = site.parts.pauses.skip_next(tx, "a", {"n": 4})
        shown = job_slots(plan_of(tx, job), job, tx.now, 6)
    assert [s.notes for s in shown] == [("skipped_by_hand",)] * 4 + [()] * 2
    site.tick()
    assert site.ledger() == [
        *((m, "skipped", "skipped_by_hand") for m in (10, 20, 30, 40)),
        *((m, "launched", None) for m in (50, 60)),
    ]
    assert site.world.acme.get("/v1/jobs/name:a")["skip_next"] == 0


def test_skips_by_hand_are_shown_set_and_taken_back(acme: Caller) -> None:
    acme.create("a", schedule={"cron": "0 3 * * *"})
    assert acme.post("/v1/jobs/name:a/skip-next", {"n": 2}, expect=200)["skip_next"] == 2
    notes = [s["notes"] for s in acme.get("/v1/jobs/name:a/upcoming", n=3)["items"]]
    assert notes == [["skipped_by_hand"], ["skipped_by_hand"], []]
    rows = acme.get("/v1/jobs/name:a/slots", sort="at", limit=4)["items"]
    assert [(r["state"], r["reason"]) for r in rows] == [
        ("skipped", "skipped_by_hand"),
        ("skipped", "skipped_by_hand"),
        ("upcoming", None),
        ("upcoming", None),
    ]
    # In place of what was said before; a pause keeps it.
    acme.post("/v1/jobs/name:a/pause", {"until": "2099-01-01T00:00:00Z"}, expect=200)
    assert acme.post("/v1/jobs/name:a/skip-next", {"n": 1}, expect=200)["state"] == "paused"
    job = acme.get("/v1/jobs/name:a")
    assert (job["skip_next"], job["paused"]["until"]) == (1, "2099-01-01T00:00:00Z")
    assert acme.post("/v1/jobs/name:a/skip-next", {"n": 0}, expect=200)["skip_next"] == 0


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/n"),
        ({"n": -1}, "/n"),
        ({"n": 1001}, "/n"),
        ({"n": "2"}, "/n"),
        ({"n": 1, "m": 2}, "/m"),
    ],
)
def test_what_is_wrong_with_a_skip_is_named(
    acme: Caller, document: dict[str, Any], pointer: str
) -> None:
    acme.create("a", schedule={"cron": "0 3 * * *"})
    refused = acme.post("/v1/jobs/name:a/skip-next", document, expect=422)
    assert [e["pointer"] for e in refused["errors"]] == [pointer]


def test_there_is_nothing_to_leave_out(acme: Caller, beta: Caller) -> None:
    acme.create("by-hand")
    acme.post("/v1/jobs/name:by-hand/skip-next", {"n": 1}, expect=409)
    acme.post("/v1/jobs/name:nobody/skip-next", {"n": 1}, expect=404)
    acme.create("a", schedule={"cron": "0 3 * * *"})
    beta.post("/v1/jobs/name:a/skip-next", {"n": 1}, expect=404)


@pytest.mark.parametrize(
    ("catch_up", "launched"),
    [
        pytest.param("none", [], id="none"),
        pytest.param("policy", [350.0, 355.0], id="the job's policy"),
        pytest.param({"max_count": 3}, [5.0, 10.0, 15.0], id="the oldest three"),
        pytest.param({"max_count": 2, "order": "newest"}, [350.0, 355.0], id="the newest two"),
        pytest.param(
            {"max_count": 100, "max_age": "16m", "per_minute": 1000},
            [345.0, 350.0, 355.0],
            id="no older than",
        ),
    ],
)
def test_a_resume_says_what_is_caught_up(
    site: Site, catch_up: object, launched: list[float]
) -> None:
    site.put(
        0.5,
        schedule={"every": "5m", "anchor": site.now.isoformat()},
        ends_at=(site.now + 359 * MINUTE).isoformat(),
        misfire={"policy": "fire_all", "max_count": 2, "order": "newest", "grace": "1s"},
    )
    with site.at(1) as tx:
        site.parts.pauses.pause(tx, "a", {"reason": "a test"})
    with site.parts.database.tenant(
        TenantId(UUID(site.world.tenant_id("acme"))), Who("test")
    ) as tx:
        job = site.parts.pauses.resume(tx, "a", {"catch_up": catch_up})
    assert job.paused is None
    site.tick()
    found = site.ledger()
    assert [m for m, kind, _ in found if kind == "launched"] == launched
    assert [m for m, _, _ in found] == [float(m) for m in range(5, 360, 5)]
    reason = "paused" if catch_up == "none" else "misfire"
    assert {r for _, kind, r in found if kind == "skipped"} == {reason}


@pytest.mark.parametrize(
    ("catch_up", "pointer"),
    [
        ("all", "/catch_up"),
        (3, "/catch_up"),
        ({"max_count": 0}, "/catch_up/max_count"),
        ({"most": 3}, "/catch_up/most"),
        ({"order": "random"}, "/catch_up/order"),
    ],
)
def test_what_is_wrong_with_a_catch_up_is_named(
    acme: Caller, catch_up: object, pointer: str
) -> None:
    acme.create("a", schedule={"cron": "0 3 * * *"}, paused=True)
    refused = acme.post("/v1/jobs/name:a/resume", {"catch_up": catch_up}, expect=422)
    assert [e["pointer"] for e in refused["errors"]] == [pointer]
    assert acme.get("/v1/jobs/name:a")["state"] == "paused"


def test_the_bound_of_a_resume_counts_slots_that_are_within_the_grace(site: Site) -> None:
    start = SystemClock().now().replace(microsecond=0) - timedelta(seconds=30)
    site.put(0.5, schedule={"every": "3s", "anchor": start.isoformat()}, misfire={"grace": "1h"})
    with site.at(1) as tx:
        site.parts.pauses.pause(tx, "a", {})
    with site.parts.database.tenant(
        TenantId(UUID(site.world.tenant_id("acme"))), Who("test")
    ) as tx:
        site.parts.pauses.resume(tx, "a", {"catch_up": {"max_count": 2}})
        resumed = tx.now
    site.tick()
    rows = site.world.database.rows("select scheduled_at from launches order by scheduled_at")
    assert len([at for (at,) in rows if at <= resumed]) == 2
    assert site.world.database.rows("select catch_up from jobs") == [(None,)]


def test_an_interval_is_measured_from_the_end_of_the_run(site: Site) -> None:
    job = site.put(
        0.0,
        schedule={
            "every": "20m",
            "anchor": (site.now + 10 * MINUTE).isoformat(),
            "measured_from": "completion",
        },
        misfire={"policy": "fire_once"},
    )
    assert job.next_run_at == site.now + 10 * MINUTE
    site.tick()
    shown = site.world.acme.get("/v1/jobs/name:a")
    assert (shown["state"], shown["next_run_at"]) == ("active", None)
    assert site.world.acme.get("/v1/jobs/name:a/upcoming")["items"] == []
    assert site.owner.complete(OWNED, 10, site.planner).jobs == 0
    ended = SystemClock().now().replace(microsecond=400_000) - MINUTE
    site.world.database.run(
        "update launches set state = 'dead', phase = 3, finished_at = %s", ended
    )
    assert site.owner.complete(OWNED, 10, site.planner).jobs == 1
    following = ended.replace(microsecond=0) + timedelta(seconds=1) + 20 * MINUTE
    found = site.world.acme.get("/v1/jobs/name:a")
    assert datetime.fromisoformat(found["next_run_at"]) == following
    upcoming = site.world.acme.get("/v1/jobs/name:a/upcoming")["items"]
    assert [datetime.fromisoformat(s["at"]) for s in upcoming] == [following]
    # And again: the second run is due there, and the third follows its end.
    site.world.database.run("update jobs set next_run_at = now() - interval '3 seconds'")
    site.tick()
    assert site.world.database.rows("select count(*) from launches") == [(2,)]
    assert site.world.database.rows("select awaits, next_run_at from jobs") == [(True, None)]
    rows = site.world.acme.get("/v1/jobs/name:a/slots")["items"]
    assert [r["state"] for r in rows] == ["launched", "launched"]


def test_a_pause_and_an_edit_of_a_job_that_awaits_an_end(site: Site) -> None:
    schedule = {"every": "20m", "measured_from": "completion"}
    site.put(0.0, schedule=schedule, misfire={"policy": "fire_once"})
    site.tick()
    acme = site.world.acme
    acme.post("/v1/jobs/name:a/pause", expect=200)
    resumed = acme.post("/v1/jobs/name:a/resume", expect=200)
    assert (resumed["state"], resumed["next_run_at"]) == ("active", None)
    changed = acme.patch("/v1/jobs/name:a", {"schedule": {"every": "30m"}})
    assert changed["next_run_at"] is not None
    assert site.owner.complete(OWNED, 10, site.planner).jobs == 0  # it awaits nothing any more


def test_preview_and_upcoming_show_what_a_calendar_does(acme: Caller) -> None:
    acme.put("/v1/calendars/weekend", {"weekdays": ["sat", "sun"]}, expect=201)
    schedule = {"cron": "0 9 * * *"}
    asked = {"schedule": schedule, "n": 4, "after": "2026-03-05T12:00:00Z"}
    excluded = acme.post(
        "/v1/schedules/preview", {**asked, "calendars": {"exclude": ["weekend"]}}, expect=200
    )
    assert [(s["at"][:10], s["notes"]) for s in excluded["items"]] == [
        ("2026-03-06", []),
        ("2026-03-07", ["excluded:weekend"]),
        ("2026-03-08", ["excluded:weekend"]),
        ("2026-03-09", []),
    ]
    use = {"exclude": ["weekend"], "on_excluded": "next_allowed"}
    moved = acme.post("/v1/schedules/preview", {**asked, "calendars": use}, expect=200)
    assert [(s["at"], s["notes"]) for s in moved["items"]][:3] == [
        ("2026-03-06T09:00:00Z", []),
        ("2026-03-09T00:00:00Z", ["moved_by_calendar:weekend"]),
        ("2026-03-09T09:00:00Z", []),
    ]
    refused = acme.post(
        "/v1/schedules/preview", {**asked, "calendars": {"exclude": ["week"]}}, expect=422
    )
    assert [e["pointer"] for e in refused["errors"]] == ["/calendars/exclude/0"]
    job = acme.create("a", schedule=schedule, calendars={"include": ["weekend"]})
    assert job["calendars"] == {"exclude": [], "include": ["weekend"], "on_excluded": "skip"}
    shown = acme.get("/v1/jobs/name:a/upcoming", n=7, after="2026-03-05T12:00:00Z")["items"]
    assert [s["at"][:10] for s in shown if not s["notes"]] == ["2026-03-07", "2026-03-08"]
    difference = acme.post("/v1/schedules/preview", {**asked, "job": "name:a"}, expect=200)[
        "difference"
    ]
    # Saturday and Sunday are those that both launch; the job alone has the next weekend.
    assert difference == {"added": ["2026-03-06T09:00:00Z", "2026-03-09T09:00:00Z"], "removed": []}


@pytest.mark.parametrize(("minute", "next_run"), [(95, 180), (40, 120)])
def test_a_slot_that_passed_is_not_moved_behind_an_edit(
    site: Site, minute: float, next_run: int
) -> None:
    closed = ranges((site.now + 30 * MINUTE, site.now + 120 * MINUTE))
    site.world.acme.put("/v1/calendars/closed", closed, expect=201)
    schedule = {"every": "90m", "anchor": site.now.isoformat()}
    site.put(1, schedule=schedule)
    use = {"exclude": ["closed"], "on_excluded": "next_allowed"}
    site.world.database.run("update jobs set next_run_at = %s", site.now + 180 * MINUTE)
    job = site.put(minute, schedule=schedule, calendars=use)
    # The slot of minute 90 moves to 120 if it is to come, and is none of the job's if it is past.
    assert job.next_run_at == site.now + next_run * MINUTE


def test_the_end_of_a_pause_is_not_part_of_it_however_late_it_is_seen(site: Site) -> None:
    site.put(
        0.5,
        schedule={"every": "10m", "anchor": site.now.isoformat()},
        ends_at=(site.now + 60 * MINUTE).isoformat(),
        misfire={"policy": "fire_all", "max_count": 2, "max_age": "2d"},
    )
    until = (site.now + 30 * MINUTE).isoformat()
    with site.at(1) as tx:
        site.parts.pauses.pause(tx, "a", {"until": until})
    pausing = site.ledger()
    assert pausing == [(10, "skipped", "paused"), (20, "skipped", "paused")]
    assert site.owner.resume(OWNED, 10, site.planner).jobs == 1
    site.tick()
    assert site.ledger() == [
        (10, "skipped", "paused"),
        (20, "skipped", "paused"),
        (30, "launched", None),
        (40, "launched", None),
        (50, "skipped", "misfire"),
        (60, "skipped", "misfire"),
    ]


def test_a_fraction_of_a_second_delays_a_slot_and_does_not_name_it(acme: Caller) -> None:
    schedule = {"at": "2099-12-24T18:00:00.9Z"}
    shown = acme.post("/v1/schedules/preview", {"schedule": schedule}, expect=200)["items"]
    assert [(s["at"], s["local"]) for s in shown] == [
        ("2099-12-24T18:00:00Z", "2099-12-24T18:00:00+00:00")
    ]
    job = acme.create("a", schedule=schedule)
    assert job["next_run_at"] == "2099-12-24T18:00:00.900000Z"
    assert acme.get("/v1/jobs/name:a/upcoming")["items"] == shown
    rows = acme.get("/v1/jobs/name:a/slots", sort="at")["items"]
    assert [r["at"] for r in rows] == ["2099-12-24T18:00:00Z"]
