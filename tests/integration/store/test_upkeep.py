"""What is removed after its time, and what stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.support.stepped import Counted as Metered
from tests.support.store_bed import TENANT, PostgresBed, make_job, make_launch
from tests.support.until import until

from tickrail.core.aged import Aged
from tickrail.core.ids import JobId
from tickrail.core.states import State
from tickrail.engine.upkeep import BATCH, EVERY, SOON, SOON_ENDING, Upkeep
from tickrail.store.upkeep import PostgresUpkeep, first_id

pytestmark = pytest.mark.integration
WEEK, MONTH, YEAR = (timedelta(days=n) for n in (7, 30, 400))


def deleted(bed: PostgresBed, days: float) -> JobId:
    """A job with a tag and a calendar, deleted so many days ago."""
    job = make_job(bed)
    gone = (
        "update jobs set state = 'deleted', deleted_at = now() - %s * interval '1 d' where id = %s"
    )
    bed.conn.execute(gone, [days, job])
    for table, columns in (
        ("job_tags (job_id, tenant_id, key, value)", "id, tenant_id, 'age', 'old'"),
        ("job_calendars (job_id, tenant_id, calendar)", "id, tenant_id, 'holidays'"),
    ):
        bed.conn.execute(f"insert into {table} select {columns} from jobs where id = %s", [job])
    return job


def there(bed: PostgresBed) -> set[JobId]:
    return {JobId(row[0]) for row in bed.conn.execute("select id from jobs").fetchall()}


def test_jobs_deleted_long_ago_go_when_their_history_is_gone(
    bed: PostgresBed, upkeep: PostgresUpkeep
) -> None:
    live, young, old, older = make_job(bed), deleted(bed, 29), deleted(bed, 31), deleted(bed, 90)
    ran, left_out = deleted(bed, 31), deleted(bed, 31)
    launch = make_launch(bed, ran)
    bed.change(launch, state=State.SUCCEEDED)
    bed.conn.execute(
        "insert into skips (job_id, scheduled_at, last_at, tenant_id, count, reason)"
        " values (%s, now(), now(), %s, 1, 'paused')",
        [left_out, TENANT],
    )
    assert upkeep.purge_jobs(MONTH, 1) == 1
    assert there(bed) == {live, young, old, ran, left_out}
    assert upkeep.purge_jobs(MONTH, 10) == 1
    assert there(bed) == {live, young, ran, left_out}
    for table in ("job_versions", "job_tags", "job_calendars"):
        rows = bed.conn.execute(f"select job_id from {table}").fetchall()
        assert {row[0] for row in rows} <= {live, young, ran, left_out}
    bed.conn.execute("delete from launches")
    bed.conn.execute("delete from skips")
    assert upkeep.purge_jobs(MONTH, 10) == 2
    assert there(bed) == {live, young}
    assert older not in there(bed)


def backfilled(job: JobId) -> str:
    """A statement that keeps a backfill of the job."""
    return (
        "insert into backfills (id, tenant_id, job_id, partition, state, from_at, until_at,"
        f" max_open, total) values (gen_random_uuid(), '{TENANT}', '{job}', 0, 'cancelled', now(),"
        " now() + interval '1 s', 1, 1)"
    )


def test_jobs_that_have_to_stay_keep_no_others(bed: PostgresBed, upkeep: PostgresUpkeep) -> None:
    """The oldest ones have open launches: more of them than a call looks at."""
    stuck = [deleted(bed, 90 - n) for n in range(9)]
    launches = [make_launch(bed, job) for job in stuck]
    free = [deleted(bed, 40), deleted(bed, 39)]
    calls = [upkeep.purge_jobs(MONTH, 1) for _ in range(6)]
    assert sorted(calls) == [0, 0, 0, 0, 1, 1]
    assert there(bed) == set(stuck)
    assert not there(bed) & set(free)
    bed.conn.execute("delete from launches where id = %s", [launches[0]])
    calls = [upkeep.purge_jobs(MONTH, 1) for _ in range(6)]
    assert sum(calls) == 1, "it begins anew behind the last one"
    assert there(bed) == set(stuck[1:])


def test_a_job_with_a_backfill_stays(bed: PostgresBed, upkeep: PostgresUpkeep) -> None:
    with_one, without = deleted(bed, 31), deleted(bed, 31)
    bed.conn.execute(backfilled(with_one).encode())
    assert upkeep.purge_jobs(MONTH, 10) == 1
    assert there(bed) == {with_one}
    assert without not in there(bed)


def test_a_job_that_gets_a_backfill_at_this_moment_stays(
    bed: PostgresBed, upkeep: PostgresUpkeep
) -> None:
    meanwhile, other = deleted(bed, 31), deleted(bed, 31)
    with bed.database.admin() as maker, maker.transaction(), ThreadPoolExecutor(1) as pool:
        maker.execute(backfilled(meanwhile).encode())
        done = pool.submit(upkeep.purge_jobs, MONTH, 10)
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        until(lambda: done.done() or bed.value(waits) > 0, 30, 0.02)
        assert done.done(), "it waits for the one who makes the backfill"
    assert done.result(30) == 1
    assert upkeep.purge_jobs(MONTH, 10) == 0
    assert there(bed) == {meanwhile}
    assert other not in there(bed)


def test_the_oldest_entries_of_the_audit_log_go(bed: PostgresBed, upkeep: PostgresUpkeep) -> None:
    make_job(bed)  # its tenant, too
    (now,) = bed.conn.execute("select now()").fetchone() or ()
    for days in (0, 399, 401, 500, 600):
        bed.conn.execute(
            "insert into audit_log (id, tenant_id, at, actor, action, subject)"
            " values (%s, %s, now() - %s * interval '1 day', 'key:1', 'job.pause', %s)",
            [first_id(now - timedelta(days=days)), TENANT if days else None, days, str(days)],
        )
    left = "select subject from audit_log order by at desc"
    assert upkeep.purge_audit(YEAR, 2) == 2
    assert bed.conn.execute(left).fetchall() == [("0",), ("399",), ("401",)]
    assert upkeep.purge_audit(YEAR, 2) == 1
    assert upkeep.purge_audit(YEAR, 2) == 0
    assert bed.conn.execute(left).fetchall() == [("0",), ("399",)]


class Counted:
    """Records of which so many are too old."""

    def __init__(self, jobs: int = 0, entries: int = 0, **others: int) -> None:
        self.jobs, self.entries = jobs, entries
        self.others = {Aged(name): count for name, count in others.items()}
        self.asked: dict[Aged, timedelta] = {}
        self.calls = 0

    def keys_expiring(self, within: timedelta) -> int:
        assert within == SOON_ENDING
        return 3

    def purge_jobs(self, older: timedelta, most: int) -> int:
        assert older == MONTH
        taken = min(most, self.jobs)
        self.jobs -= taken
        return taken

    def purge_audit(self, older: timedelta, most: int) -> int:
        assert older == YEAR
        taken = min(most, self.entries)
        self.entries -= taken
        return taken

    def purge(self, what: Aged, older: timedelta, most: int) -> int:
        self.calls += 1
        self.asked[what] = older
        taken = min(most, self.others.get(what, 0))
        self.others[what] = self.others.get(what, 0) - taken
        return taken


def test_a_turn_takes_a_batch_and_comes_back_soon_while_there_is_more() -> None:
    records, metrics = Counted(10, 2 * BATCH + 5), Metered()
    loop = Upkeep(records, YEAR, WEEK, metrics)
    assert [loop.run_once() for _ in range(4)] == [SOON, SOON, EVERY, EVERY]
    assert (records.jobs, records.entries) == (0, 0)
    assert metrics.gauges == {"api_keys_expiring": 3}


def test_answers_go_after_a_day_and_what_has_ended_with_the_history() -> None:
    records = Counted(answers=BATCH, notices=3)
    loop = Upkeep(records, YEAR, WEEK)
    assert [loop.run_once() for _ in range(2)] == [SOON, EVERY]
    assert not any(records.others.values())
    day = timedelta(days=1)
    own = {
        Aged.ANSWERS: day, Aged.OPERATOR_ANSWERS: day, Aged.WINDOWS: 3 * day, Aged.BUCKETS: MONTH,
    }  # fmt: skip
    assert records.asked == {what: own.get(what, WEEK) for what in Aged}


def test_a_kind_that_there_is_much_of_neither_costs_nor_stops_the_others() -> None:
    """While one fills its batches, the others are looked at as often as else."""
    records = Counted(answers=10**9)
    loop = Upkeep(records, YEAR, WEEK)
    turns = int(EVERY / SOON)
    assert [loop.run_once() for _ in range(turns)] == [SOON] * turns
    assert records.calls == len(Aged) + turns - 1
    records.others[Aged.NOTICES] = 1
    loop.run_once()
    assert records.others[Aged.NOTICES] == 0


@pytest.mark.parametrize(
    ("name", "ends", "used", "more", "counted"),
    [
        ("soon", 3, 1, {}, 1),
        ("later", 8, 1, {}, 0),
        ("over", -1, 2, {}, 0),
        ("never", None, 1, {}, 0),
        ("unused", 3, 9, {}, 0),
        ("never used", 3, None, {}, 0),
        ("replaced", 3, 1, {"replaced_by": "other"}, 0),
        ("revoked", 3, 1, {"revoked_at": "2026-01-01T00:00:00Z"}, 0),
    ],
)
def test_keys_in_use_that_end_soon_are_counted(
    bed: PostgresBed,
    upkeep: PostgresUpkeep,
    name: str,
    ends: int | None,
    used: int | None,
    more: dict[str, str],
    counted: int,
) -> None:
    for key in ("other", "k"):
        bed.conn.execute(
            "insert into api_keys (id, name, secret_hash, scopes) values (%s, %s, '', '{read}')",
            [key, name],
        )
    day = "interval '1 d'"
    bed.conn.execute(
        f"update api_keys set expires_at = now() + %s * {day}, last_used_at = now() - %s * {day}"
        " where id = 'k'",
        [ends, used],
    )
    for column, value in more.items():
        bed.conn.execute(f"update api_keys set {column} = %s where id = 'k'", [value])
    assert upkeep.keys_expiring(SOON_ENDING) == counted
