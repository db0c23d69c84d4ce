"""The watchdog on a real database: what an owner did is in order, and everything else is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.clock import FakeClock
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, TENANT, PostgresBed, claim_one, make_job, verdict
from tests.support.store_bed import end_of as ended

from tickrail.core.calendars import Calendar, parse_calendar
from tickrail.core.definition import parse_plan
from tickrail.core.ids import JobId, LaunchId
from tickrail.core.plan import first_due
from tickrail.core.states import State
from tickrail.core.timetable import Allowance
from tickrail.core.watch import Finding, WatchRules, Wrong
from tickrail.core.watch_alarm import Alarm, Said
from tickrail.engine.tick import Tick
from tickrail.engine.watchdog import SilenceWatch, Watchdog, WatchdogSettings
from tickrail.store.watch import PostgresWatchStore

pytestmark = pytest.mark.integration

LATE = 30
MINUTELY = {"every": "1m", "anchor": "2026-01-01T00:00:00Z"}
EXPECTS = {"on_failures": {"notify": ["kafka:t"], "expect_success_every": "1h"}}


class Watched:
    """A watchdog that is stepped, and the owner that it looks at."""

    def __init__(self, bed: PostgresBed, *, page: int = 1000) -> None:
        self.bed, self.clock, self.metrics = bed, FakeClock(), Counted()
        self.store = PostgresWatchStore(bed.settings)
        self.alarms: list[Alarm] = []
        settings = WatchdogSettings(15.0, WatchRules(timedelta(seconds=LATE)), page=page)
        self.dog = Watchdog(self.store, self.clock, self.metrics, self, settings)
        self.silence = SilenceWatch(self.store, self.metrics)
        self.tick = Tick(bed.owner(), self.metrics)

    def take(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)

    def look(self) -> dict[JobId, Finding]:
        """What is wrong after a whole pass that begins now."""
        self.clock.advance(3600)
        passes = self.dog.last_pass
        while self.dog.last_pass == passes:
            self.dog.run_once()
            self.clock.advance(0.001)
        return {f.job: f for f in self.dog.found}

    def owner_ticks(self) -> None:
        while self.tick.run_once(OWNED).jobs:
            pass

    def job(self, *, behind: float, **definition: Any) -> JobId:
        """A job that was made so many seconds ago, and nobody has ticked since."""
        document = {"schedule": MINUTELY, "overlap": "allow", **definition}
        job = make_job(self.bed, **document)
        made = self.bed.now() - timedelta(seconds=behind)
        plan = parse_plan(json.loads(self.bed.job_row(job).plan), job=job, now=made)
        if plan.calendars is not None:
            read = [self.calendar(name) for name in plan.calendars.exclude]
            plan = replace(plan, allowance=Allowance(tuple(read)))
            self.run("insert into job_calendars (job_id, tenant_id, calendar)"
                     " select %s, tenant_id, name from calendars where name = any(%s)",
                     job, list(plan.calendars.exclude))  # fmt: skip
        self.run(
            "update jobs set created_at = %s, updated_at = %s, next_run_at = %s where id = %s",
            made, made, first_due(plan, job, made), job,
        )  # fmt: skip
        return job

    def calendar(self, name: str) -> Calendar:
        found = self.bed.value("select document from calendars where name = %s", name)
        return parse_calendar(found, name=name, version=1)

    def run(self, statement: str, *values: object) -> None:
        self.bed.conn.execute(statement.encode(), values)

    def gauge(self, name: str) -> float:
        return self.metrics.gauges[name]


@pytest.fixture
def watched(bed: PostgresBed) -> Iterator[Watched]:
    made = Watched(bed)
    yield made
    made.store.close()


def test_what_the_owner_decided_on_is_in_order(watched: Watched) -> None:
    for overlap in ("allow", "skip", "buffer_one", "cancel_other"):
        for policy in ("skip", "fire_once", "fire_all"):
            misfire = {"policy": policy, "grace": "5s"}
            watched.job(behind=3000, overlap=overlap, misfire=misfire)
    watched.job(behind=3000, jitter="20s", starts_at="2026-01-01T00:00:00Z")
    late = watched.look()
    assert len(late) == 13
    assert {f.wrong for f in late.values()} == {Wrong.MISSING}
    assert watched.gauge("watchdog_slots_missing") > 13 * 40
    assert 2900 < watched.gauge("watchdog_slots_late_seconds") < 3600
    watched.owner_ticks()
    assert watched.look() == {}
    assert watched.gauge("watchdog_slots_missing") == 0
    assert watched.gauge("watchdog_slots_late_seconds") == 0
    assert [a.said for a in watched.alarms] == [Said.RAISED, Said.CLEARED]


def test_a_row_that_says_otherwise_is_not_believed(watched: Watched) -> None:
    ahead, lost, gone, right = (watched.job(behind=95, misfire={"grace": "1h"}) for _ in range(4))
    watched.owner_ticks()
    assert watched.look() == {}
    watched.run("update jobs set next_run_at = next_run_at + interval '1 day' where id = %s", ahead)
    watched.run("update jobs set next_run_at = null where id = %s", lost)
    watched.run("delete from launches where job_id = %s", gone)
    found = watched.look()
    assert {job: f.wrong for job, f in found.items()} == {
        ahead: Wrong.ADRIFT,
        lost: Wrong.ADRIFT,
        gone: Wrong.MISSING,
    }
    assert right not in found
    assert found[gone].slots in (1, 2)
    assert watched.metrics.counts["watchdog_found_total", "adrift"] == 2
    # Its next slot comes and goes.
    for table, column in (("jobs", "created_at"), ("jobs", "updated_at")):
        watched.run(
            f"update {table} set {column} = {column} - interval '5 min' where id = %s", lost
        )
    assert watched.look()[lost].wrong is Wrong.MISSING
    watched.run("update jobs set state = 'paused' where id = %s", gone)
    assert gone not in watched.look()


def test_every_scheduler_is_gone_and_the_pages_are_small(bed: PostgresBed) -> None:
    watched = Watched(bed, page=3)
    jobs = [watched.job(behind=100) for _ in range(10)]
    watched.clock.advance(20)
    watched.dog.run_once()  # the first turn alone, whatever page it reads
    assert set(jobs) == {f.job for f in watched.dog.found}
    assert watched.dog.last_pass is None
    assert set(watched.look()) == set(jobs)
    assert watched.metrics.counts["watchdog_checked_total",] >= 20
    watched.store.close()


def test_paused_changed_and_suspended_jobs_are_not_asked_for(watched: Watched) -> None:
    paused, changed, resumed, over, right = (watched.job(behind=600) for _ in range(5))
    assert len(watched.look()) == 5
    watched.run("update jobs set state = 'paused' where id = %s", paused)
    watched.run("update jobs set updated_at = now(), next_run_at = date_trunc('minute', now())"
                " + interval '1 min' where id = %s", changed)  # fmt: skip
    watched.run("update jobs set failures_from = now(), next_run_at = date_trunc('minute', now())"
                " + interval '1 min' where id = %s", resumed)  # fmt: skip
    watched.run("update jobs set state = 'paused', resume_at = now() - interval '200 s'"
                " where id = %s", over)  # fmt: skip
    found = watched.look()
    assert set(found) == {over, right}
    assert found[over].slots in (2, 3)
    watched.run("update tenants set state = 'suspended'")
    assert watched.look() == {}
    watched.run("update tenants set state = 'active', resumed_at = now()")
    assert watched.look() == {}


def test_calendars_and_zone_data_that_change_are_no_reason(watched: Watched) -> None:
    moved = watched.job(behind=7200)
    today = watched.bed.now().date()
    days = [(today + timedelta(days=n)).isoformat() for n in range(-2, 3)]
    watched.bed.set_calendar("now", 1, json.dumps({"dates": days}))
    watched.bed.set_calendar("then", 1, json.dumps({"dates": ["2020-01-01"]}))
    watched.run("update calendars set updated_at = now() - interval '3 h'")
    inside = watched.job(behind=7200, calendars={"exclude": ["now"]})
    outside = watched.job(behind=7200, calendars={"exclude": ["then"]})
    assert set(watched.look()) == {outside, moved}
    watched.run("update calendars set updated_at = now()")
    assert set(watched.look()) == {moved}
    watched.run("insert into tzdata_changes (job_id, tenant_id, from_version, to_version)"
                " values (%s, %s, 'a', 'b')", moved, TENANT)  # fmt: skip
    assert watched.look() == {}
    watched.run("update jobs set version = 2, plan = jsonb_set(plan, '{calendars,exclude,0}',"
                " '\"gone\"') where id = %s", inside)  # fmt: skip
    found = watched.look()
    assert [f.wrong for f in found.values()] == [Wrong.UNREADABLE]
    assert "'gone'" in str(found[inside].error)


def test_an_interval_from_the_end_of_launches(watched: Watched) -> None:
    after = {"every": "5m", "anchor": "2026-01-01T00:00:00Z", "measured_from": "completion"}
    job = watched.job(behind=350, schedule=after, overlap="skip")
    assert watched.look()[job].wrong is Wrong.MISSING
    watched.owner_ticks()
    assert watched.look() == {}
    worker = watched.bed.worker()
    claimed = claim_one(watched.bed, worker, watched.bed.launches(job)[0].id)
    assert watched.look() == {}
    worker.finish([ended(claimed, verdict(claimed, State.SUCCEEDED))])
    assert watched.look() == {}
    watched.run("update launches set finished_at = finished_at - interval '10 min',"
                " scheduled_at = scheduled_at - interval '11 min'")  # fmt: skip
    watched.run("update jobs set created_at = created_at - interval '1 h',"
                " updated_at = updated_at - interval '1 h'")  # fmt: skip
    found = watched.look()
    assert (found[job].wrong, found[job].slots) == (Wrong.MISSING, 1)


def succeed(watched: Watched, job: JobId, *, ago: float) -> None:
    """A launch of the job that succeeded so many seconds ago."""
    slot = watched.bed.now().replace(microsecond=0) - timedelta(seconds=ago)
    watched.run(
        "insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue,"
        " priority, origin, state, phase, max_attempts, rerun, visibility, due_at, finished_at,"
        " epoch) values (%s, %s, %s, %s, 1, 0, 'default', 1, 'manual:x', 'succeeded', 3, 1, true,"
        " 30, %s, %s, 7)",
        LaunchId(uuid4()), slot, TENANT, job, slot, slot,
    )  # fmt: skip


def notices(watched: Watched) -> list[tuple[str, UUID]]:
    rows = watched.bed.conn.execute("select kind, about from notices order by created_at")
    return [(row[0], UUID(row[1].partition(":")[2])) for row in rows.fetchall()]


def expect(watched: Watched, job: JobId, *, ago: float) -> None:
    """As if the expectation was set so many seconds ago."""
    watched.run(
        "update jobs set expect_success_every = interval '1 h', success_due_at = now()"
        " - make_interval(secs => %s) + interval '1 h' where id = %s",
        ago, job,
    )  # fmt: skip


def test_a_silence_is_told_once_and_again_after_a_success_and_another(watched: Watched) -> None:
    silent, fine, paused = (watched.job(behind=1, **EXPECTS) for _ in range(3))
    for job in (silent, fine, paused):
        expect(watched, job, ago=4000)
    succeed(watched, fine, ago=1800)
    watched.run("update jobs set state = 'paused' where id = %s", paused)
    watched.silence.run_once()
    assert notices(watched) == [("job.silent", silent)]
    assert watched.metrics.counts["watchdog_silences_total",] == 1
    assert watched.gauge("watchdog_jobs_silent") == 1
    assert watched.bed.value("select silent_since from jobs where id = %s", silent) is not None
    due = watched.bed.value("select success_due_at - now() from jobs where id = %s", fine)
    assert 1700 < due.total_seconds() < 1801
    for _ in range(3):  # it stays silent
        watched.run("update jobs set success_due_at = now() where id = %s", silent)
        watched.silence.run_once()
    assert len(notices(watched)) == 1
    succeed(watched, silent, ago=5)
    watched.run("update jobs set success_due_at = now() where id = %s", silent)
    watched.silence.run_once()
    assert watched.gauge("watchdog_jobs_silent") == 0
    assert watched.bed.value("select silent_since from jobs where id = %s", silent) is None
    watched.run("update launches set finished_at = finished_at - interval '2 h',"
                " scheduled_at = scheduled_at - interval '2 h'")  # fmt: skip
    expect(watched, silent, ago=7300)
    watched.silence.run_once()
    assert notices(watched)[1:] == [("job.silent", silent)]
    assert watched.gauge("watchdog_jobs_silent") == 1
    watched.run("update jobs set expect_success_every = null, success_due_at = null,"
                " silent_since = null where id = %s", silent)  # fmt: skip
    watched.silence.run_once()
    assert watched.gauge("watchdog_jobs_silent") == 0, "it expects nothing any more"


def test_two_watchdogs_tell_once(watched: Watched, bed: PostgresBed) -> None:
    job = watched.job(behind=1, **EXPECTS)
    expect(watched, job, ago=4000)
    other = Watched(bed)
    with bed.conn.transaction():
        bed.conn.execute("select from jobs where id = %s for update", [job])
        watched.silence.run_once()
        assert notices(watched) == []
    watched.silence.run_once()
    other.silence.run_once()
    assert len(notices(watched)) == 1
    other.store.close()
