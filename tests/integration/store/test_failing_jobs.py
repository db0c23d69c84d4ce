"""Jobs that pause themselves while much happens at once, and notices between tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from tests.support.at_once import at_once
from tests.support.store_bed import (
    OWNED,
    PostgresBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    verdict,
)

from tickrail.core.ids import JobId
from tickrail.core.ports_worker import Finish
from tickrail.core.states import State
from tickrail.core.verdict import Verdict
from tickrail.engine.upkeep import Upkeep
from tickrail.store.session import connect

pytestmark = pytest.mark.integration

OPS = {"notify": ["webhook:ops"]}
PAUSE = {**OPS, "pause_after": 3}


def noted(bed: PostgresBed, query: bytes, *values: object) -> list[Any]:
    return [row[0] for row in bed.conn.execute(query, values)]


def dead_ends(bed: PostgresBed, job: JobId, many: int, first: int) -> list[Finish]:
    worker = bed.worker()
    claims = [claim_one(bed, worker, make_launch(bed, job, ago=first + i)) for i in range(many)]
    worker.close()
    return [end_of(c, verdict(c, State.DEAD)) for c in claims]


def test_of_ends_at_once_each_sees_those_before_it(bed: PostgresBed) -> None:
    """However the ends fall, the third of them pauses, and no other."""
    jobs = [make_job(bed, on_failures=PAUSE) for _ in range(12)]
    ends = [dead_ends(bed, job, 3, 10) for job in jobs]
    workers = [bed.worker() for _ in range(3)]
    turns: list[Iterator[int]] = [count(), count(), count()]

    def end(n: int) -> None:
        at = next(turns[n])
        if at < len(jobs):
            workers[n].finish([ends[at if n else len(jobs) - 1 - at][n]])

    at_once({str(n): lambda n=n: end(n) for n in range(3)}, 2.0)  # type: ignore[misc]
    assert {bed.job_row(job).state for job in jobs} == {"paused"}
    paused = noted(bed, b"select subject from audit_log where actor = 'system'")
    assert sorted(paused) == sorted(f"job:{job}" for job in jobs)
    told = noted(bed, b"select about from notices where kind = 'job.paused'")
    assert sorted(told) == sorted(paused)
    dead = noted(bed, b"select count(*) from notices where kind = 'launch.dead' group by about")
    assert dead == [3] * len(jobs)


def test_nobody_deadlocks_with_ends_that_pause(bed: PostgresBed) -> None:
    """The API holds a job and then its launches, the owner jobs, fences, launches; so do ends."""
    jobs = [make_job(bed, due_in=-1, overlap="allow", schedule={"every": "1s"},
                     on_failures=PAUSE) for _ in range(4)]  # fmt: skip
    ticking, reaping = bed.owner(), bed.owner()
    workers = [bed.worker(), bed.worker()]
    api, hand = bed.database.admin(), bed.database.admin()
    order = count()

    def work(n: int) -> None:
        at = next(order)
        wanted = jobs if n else jobs[::-1]
        launches = [make_launch(bed, j, ago=1 + at % 50) for j in wanted]
        claims = [claim_one(bed, workers[n], x) for x in launches]
        workers[n].finish([end_of(c, verdict(c, State.DEAD)) for c in claims[:3]])

    def change() -> None:
        for job in jobs:
            with api.transaction():
                api.execute("select from jobs where id = %s for update", [job])
                api.execute(
                    "update launches set cancel_requested = true where job_id = %s and phase < 3",
                    [job],
                )
                api.execute("update jobs set state = 'active', paused = null where id = %s", [job])

    def expire() -> None:
        hand.execute(
            "with l as (select scheduled_at, id from launches where state = 'running' order by id"
            " for no key update skip locked) update launches t set claim_expires_at = now()"
            " - interval '1 s' from l where t.scheduled_at = l.scheduled_at and t.id = l.id"
        )
        reaping.reap(OWNED, 100, lambda lost: dead(lost.attempt, lost.failures))

    def release() -> None:
        ticking.sweep(OWNED, timedelta(hours=1), 100)

    bodies = {"one": lambda: work(0), "two": lambda: work(1)}
    at_once({**bodies, "change": change, "expire": expire, "release": release}, 4.0)
    api.close()
    hand.close()
    assert noted(bed, b"select count(*) from notices where kind = 'job.paused'") > [0]


def dead(attempt: int, failures: int) -> Verdict:
    return Verdict(State.DEAD, attempt, failures + 1, timedelta(0), dlq_owed=True)


def test_a_job_that_changes_begins_anew(bed: PostgresBed) -> None:
    job = make_job(bed, on_failures=PAUSE)
    worker = bed.worker()
    worker.finish(dead_ends(bed, job, 2, 50))
    document = json.dumps({"target": {"noop": {}}, "on_failures": PAUSE})
    bed.conn.execute(
        "insert into job_versions (job_id, version, tenant_id, definition)"
        " select id, 2, tenant_id, %s::jsonb from jobs where id = %s",
        [document, job],
    )
    bed.change_job(job, version=2)
    worker.finish(dead_ends(bed, job, 2, 30))
    assert bed.job_row(job).state == "active"
    worker.finish(dead_ends(bed, job, 1, 20))
    assert bed.job_row(job).state == "paused"


def test_notices_are_none_of_the_api_s_business(bed: PostgresBed) -> None:
    job = make_job(bed, on_failures=OPS)
    bed.worker().finish(dead_ends(bed, job, 1, 10))
    tenant = bed.job_row(job).tenant_id
    add = "select add_notice(%s, 'x', 'job:1', 'webhook:ops', 'x', '{}', 5)"
    api = connect(bed.settings.__class__(bed.database.api_url))
    for statement in (add, "select from notices", "delete from notices"):
        with api.transaction():
            api.execute("select set_config('tickrail.tenant', %s, true)", [str(tenant)])
            with pytest.raises(psycopg.errors.InsufficientPrivilege), api.transaction():
                api.execute(statement.encode(), [tenant] if statement is add else [])
    # Were it granted some day, its policy would show a tenant's own alone.
    bed.conn.execute("grant select on notices to tickrail_api")
    for setting, seen in ((str(tenant), 1), ("00000000-0000-0000-0000-00000000000f", 0)):
        with api.transaction():
            api.execute("select set_config('tickrail.tenant', %s, true)", [setting])
            assert api.execute("select count(*) from notices").fetchall() == [(seen,)]
    api.close()


def test_old_notices_go_with_the_history(bed: PostgresBed, upkeep_loop: Upkeep) -> None:
    job = make_job(bed, on_failures=OPS)
    bed.worker().finish(dead_ends(bed, job, 2, 10))
    bed.conn.execute("update notices set created_at = now() - interval '31 days' where id ="
                     " (select id from notices limit 1)")  # fmt: skip
    upkeep_loop.run_once()
    assert noted(bed, b"select count(*) from notices") == [1]
