"""What is probably not meant, in the answers to those who write and read a job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import World, webhook

from tickrail.core.lint import HERD

pytestmark = pytest.mark.integration
MINUTE = {"cron": "* 3 * * *"}
DAILY = {"cron": "0 0 * * *"}


def codes(answer: Any) -> list[str]:
    return [w["code"] for w in answer["lint"]]


def crowd(world: World, tenant: str, at: str, number: int) -> None:
    """So many active jobs that wait for an instant."""
    world.database.run(
        "insert into jobs (id, tenant_id, name, partition, state, next_run_at, plan)"
        " select gen_random_uuid(), t.id, 'crowd-' || n, n %% 4, 'active', %s, '{}'"
        " from tenants t, generate_series(1, %s) n where t.name = %s",
        at,
        number,
        tenant,
    )


def test_one_job_tells_what_is_probably_not_meant_and_a_list_does_not(world: World) -> None:
    made = world.acme.post("/v1/jobs", webhook("a", schedule=MINUTE), expect=201)
    assert codes(made) == ["every_minute"]
    assert made["lint"][0]["pointer"] == "/schedule/cron"
    read = world.acme.get("/v1/jobs/name:a")
    assert codes(read) == ["every_minute"]
    assert codes(world.acme.put("/v1/jobs/name:a", read)) == ["every_minute"], "it may be sent back"
    changed = world.acme.patch("/v1/jobs/name:a", {"schedule": {"cron": "0 3 * * *"}})
    assert codes(changed) == []
    assert "lint" not in world.acme.get("/v1/jobs")["items"][0]
    hand = world.acme.post("/v1/jobs", webhook("b"), expect=201)
    assert codes(hand) == []


def test_a_crowd_at_one_instant_is_told_when_a_job_joins_it(world: World) -> None:
    first = world.acme.post("/v1/jobs", webhook("first", schedule=DAILY), expect=201)
    assert codes(first) == []
    at = first["next_run_at"]
    crowd(world, "acme", at, HERD - 2)
    assert codes(world.acme.post("/v1/schedules/preview", {"schedule": DAILY}, expect=200)) == []
    last = world.acme.post("/v1/jobs", webhook("last", schedule=DAILY), expect=201)
    assert codes(last) == ["herd"]
    assert "1,000 or more active jobs" in last["lint"][0]["message"]
    assert codes(world.acme.get("/v1/jobs/name:last")) == []
    preview = world.acme.post("/v1/schedules/preview", {"schedule": DAILY}, expect=200)
    assert codes(preview) == ["herd"]
    spread = world.acme.post(
        "/v1/jobs", webhook("spread", schedule={"cron": "H 0 * * *"}), expect=201
    )
    assert codes(spread) == ["hashed"]
    landed = {"cron": "H(0-0) 0 * * *"}
    joined = world.acme.post("/v1/jobs", webhook("landed", schedule=landed), expect=201)
    assert joined["next_run_at"] == at
    assert codes(joined) == ["hashed"], "an H that lands in the crowd cannot be told to use H"
    preview = world.acme.post("/v1/schedules/preview", {"schedule": landed}, expect=200)
    assert codes(preview) == ["hashed"]
    other = world.beta.post("/v1/jobs", webhook("b", schedule=DAILY), expect=201)
    assert codes(other) == [], "another tenant's crowd is none of its business"
    paused = world.acme.post("/v1/jobs", webhook("p", schedule=DAILY, paused=True), expect=201)
    assert codes(paused) == []


def test_the_count_ends_at_its_bounds(world: World) -> None:
    crowd(world, "acme", "2099-01-01T00:00:00Z", 3000)
    [(tenant,)] = world.database.rows("select id from tenants where name = 'acme'")
    count = "select set_config('tickrail.tenant', %s, false), count_waiting(%s, %s)"
    at = "2099-01-01T00:00:00Z"
    assert world.database.rows(count, str(tenant), at, 1000)[0][1] == 1000
    assert world.database.rows(count, str(tenant), at, 5000)[0][1] == 3000
    assert world.database.rows(count, "", at, 5000)[0][1] == 0


def test_a_few_that_wait_are_counted_in_one_partition_of_sixteen(world: World) -> None:
    """Where a crowd is asked for: each create asks, and most instants have none."""
    [(tenant,)] = world.database.rows("select id from tenants where name = 'acme'")
    count = "select set_config('tickrail.tenant', %s, false), count_waiting(%s, %s)"

    def counted(at: str, most: int) -> object:
        return world.database.rows(count, str(tenant), at, most)[0][1]

    few, more = "2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"
    crowd(world, "acme", few, 12)
    world.database.run("update jobs set name = 'few-' || name")
    crowd(world, "acme", more, 80)
    assert (counted(few, HERD), counted(few, HERD - 1)) == (3, 12)
    assert counted(more, HERD) == 80
