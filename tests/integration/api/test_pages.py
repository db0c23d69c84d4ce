"""Lists: each row that is there for the whole walk comes exactly once; filters; parameters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.support.api import Caller, World

from tickrail.core.ids import TenantId
from tickrail.core.job_filter import JobFilter
from tickrail.core.records import PageRequest, Position
from tickrail.store.jobs import JobTable
from tickrail.store.tenancy import Caller as Who
from tickrail.store.tenancy import tenant_transaction

pytestmark = pytest.mark.integration

MANY = """
insert into jobs (id, tenant_id, name, partition, state, plan, created_at)
select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %s::uuid,
       'job-' || lpad((n * 7919 %% 1000003)::text, 7, '0'), 0, 'active', '{}'::jsonb,
       '2026-03-01T00:00:00Z'::timestamptz + (n / 500) * interval '1 microsecond'
from generate_series(1, %s) n
"""
VERSIONS = """
insert into job_versions (job_id, version, tenant_id, definition)
select id, 1, tenant_id, %s::jsonb || jsonb_build_object('name', name) from jobs
"""


def fill(world: World, count: int) -> None:
    """Jobs of which each five hundred have the same created_at."""
    sample = world.acme.create("sample")
    [(document, plan)] = world.database.rows(
        "select v.definition::text, j.plan::text from jobs j join job_versions v on v.job_id = j.id"
    )
    world.acme.delete(f"/v1/jobs/{sample['id']}")
    world.database.run("delete from job_versions")
    world.database.run("delete from jobs")
    world.database.run(MANY, world.tenant_id("acme"), count)
    world.database.run("update jobs set plan = %s::jsonb", plan)
    world.database.run(VERSIONS, document)


@pytest.mark.parametrize("sort", ["created_at", "-created_at", "name", "-name"])
def test_rows_that_tie_come_once_each(world: World, acme: Caller, sort: str) -> None:
    fill(world, 1200)
    found = acme.every("/v1/jobs", limit=113, sort=sort)
    order = "name" if sort.endswith("name") else "created_at"
    way = "desc" if sort.startswith("-") else "asc"
    wanted = world.database.rows(f"select id::text from jobs order by {order} {way}, id {way}")
    assert [j["id"] for j in found] == [row[0] for row in wanted]


def test_rows_that_come_and_go_disturb_no_other(world: World, acme: Caller) -> None:
    fill(world, 40)
    seen: list[str] = []
    params: dict[str, Any] = {"limit": 7, "sort": "-created_at"}
    for turn in range(40):
        page = acme.get("/v1/jobs", **params)
        seen += [j["name"] for j in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
        acme.create(f"new-{turn}")
        acme.delete(f"/v1/jobs/name:{seen[-1]}")
    assert len(seen) == len(set(seen)) == 40


@pytest.mark.parametrize("ascending", [True, False])
def test_f07_five_thousand_of_one_instant_come_once_each_while_rows_come_and_go(
    world: World, acme: Caller, ascending: bool
) -> None:
    fill(world, 5000)
    world.database.run("update jobs set created_at = '2026-03-01T00:00:00Z'")
    engine = world.app.state.parts.database.engine
    tenant = TenantId(UUID(world.tenant_id("acme")))
    seen: list[str] = []
    after: Position | None = None
    while True:
        request = PageRequest("created_at", ascending, 7, after)
        with tenant_transaction(engine, tenant, Who("t")) as tx:
            page = JobTable(tx).page(JobFilter(), request)
        seen += [j.name for j in page.items]
        after = page.after
        if after is None:
            break
        if len(seen) % 700 == 0:
            acme.create(f"new-{len(seen)}")
            acme.delete(f"/v1/jobs/name:{seen[-1]}")
    walked = [name for name in seen if not name.startswith("new-")]
    assert len(walked) == len(set(walked)) == 5000


def test_launches_of_one_second_come_once_each(world: World, acme: Caller) -> None:
    job = acme.create("a", overlap="allow")
    for _ in range(3):
        acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
    world.database.run(
        "insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue,"
        " priority, origin, state, phase, max_attempts, rerun, visibility, due_at, epoch)"
        " select gen_random_uuid(), date_trunc('second', now()) - (n / 10) * interval '1 s',"
        " l.tenant_id, l.job_id, 1, l.partition, 'default', 1, 'schedule', 'succeeded', 3, 5, true,"
        " 30, now(), 1 from (select * from launches limit 1) l, generate_series(1, 50) n"
    )
    for sort in ("scheduled_at", "-scheduled_at"):
        found = acme.every("/v1/launches", limit=7, sort=sort)
        assert len({x["id"] for x in found}) == len(found) == 53
        times = [x["scheduled_at"] for x in found]
        assert times == sorted(times, reverse=sort.startswith("-"))


def test_filters_of_jobs(acme: Caller) -> None:
    acme.create("billing-run", tags={"team": "billing", "tier": "1"})
    acme.create("billing-old", tags={"team": "billing"}, paused=True)
    acme.create("other", tags={"team": "other"})
    acme.create("done")
    acme.delete("/v1/jobs/name:done")

    def names(**params: Any) -> set[str]:
        return {j["name"] for j in acme.get("/v1/jobs", **params)["items"]}

    assert names() == {"billing-run", "billing-old", "other"}
    assert names(tag="team:billing") == {"billing-run", "billing-old"}
    assert names(tag=["team:billing", "tier"]) == {"billing-run"}
    assert names(tag="team:bill") == set()
    assert names(state="paused") == {"billing-old"}
    assert names(state=["active", "deleted"]) == {"billing-run", "other", "done"}
    assert names(name_prefix="billing-") == {"billing-run", "billing-old"}
    assert names(name_prefix="billing_") == set()
    assert names(name_prefix="%") == set()
    assert names(queue="default", state="paused", tag="team") == {"billing-old"}
    assert names(queue="other") == set()


def test_jobs_are_found_by_when_they_were_made_and_last_changed(acme: Caller) -> None:
    made = [acme.create(name)["created_at"] for name in "abc"]
    changed = acme.patch("/v1/jobs/name:a", {"description": "x"})["updated_at"]

    def names(**params: Any) -> str:
        return "".join(j["name"] for j in acme.get("/v1/jobs", sort="name", **params)["items"])

    assert names(**{"from": made[1]}) == "bc"
    assert names(to=made[1]) == "a"
    assert names(**{"from": made[1], "to": made[2]}) == "b"
    assert names(updated_from=made[2]) == "ac"
    assert names(updated_from=changed) == "a"
    assert names(updated_to=changed) == "bc"
    for low, high in (("from", "to"), ("updated_from", "updated_to")):
        refused = acme.get("/v1/jobs", **{low: made[2], high: made[1]}, expect=422)
        assert [e["pointer"] for e in refused["errors"]] == [f"?{high}"]


def test_filters_of_launches(world: World, acme: Caller) -> None:
    acme.create("a", overlap="allow", tags={"team": "x"})
    acme.create("b", overlap="allow")
    first, second = (acme.post("/v1/jobs/name:a/trigger", expect=201)["id"] for _ in "12")
    third = acme.post("/v1/jobs/name:b/trigger", expect=201)["id"]
    world.database.run("update launches set failures = 1 where id = %s", second)
    world.database.run("update launches set state = 'dead', phase = 3 where id = %s", third)

    def ids(**params: Any) -> set[str]:
        return {x["id"] for x in acme.get("/v1/launches", **params)["items"]}

    assert ids() == {first, second, third}
    assert ids(job="name:a") == {first, second}
    assert ids(tag="team:x", state="due") == {first}
    assert ids(state="retrying") == {second}
    assert ids(state=["dead", "retrying"]) == {second, third}
    assert ids(origin="manual") == {first, second, third}
    assert ids(origin="schedule") == set()
    at = acme.get(f"/v1/launches/{first}")["scheduled_at"]
    assert first in ids(**{"from": at})
    assert first not in ids(to=at)
    assert ids(**{"from": "2020-01-01T00:00:00+02:00", "to": "2020-01-02T00:00:00Z"}) == set()
    assert ids(**{"from": "9999-12-31T23:59:59Z"}) == set()


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("/v1/jobs", "limit=0", "?limit"),
        ("/v1/jobs", "limit=501", "?limit"),
        ("/v1/jobs", "limit=x", "?limit"),
        ("/v1/jobs", "limt=5", "?limt"),
        ("/v1/jobs", "sort=id", "?sort"),
        ("/v1/jobs", "state=running", "?state"),
        ("/v1/jobs", "tag=%21", "?tag"),
        ("/v1/jobs", "tag=a:%00", "?tag"),
        ("/v1/jobs", "name_prefix=%00", "?name_prefix"),
        ("/v1/jobs", "queue=%00", "?queue"),
        ("/v1/jobs", "cursor=zzz", "?cursor"),
        ("/v1/jobs", "cursor=WzFd", "?cursor"),
        ("/v1/jobs", "limit=" + "9" * 5000, "?limit"),
        ("/v1/launches", "from=yesterday", "?from"),
        ("/v1/launches", "from=2026-01-01T00:00:00", "?from"),
        ("/v1/launches", "to=0001-01-01T00:00:00%2B14:00", "?to"),
        ("/v1/launches", "job=nope", "?job"),
        ("/v1/launches", "queue=%00", "?queue"),
        ("/v1/jobs/name:a", "x=1", "?x"),
        ("/v1/jobs/name:a/upcoming", "n=501", "?n"),
        ("/v1/jobs/name:a/slots", "sort=name", "?sort"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(
    acme: Caller, path: str, query: str, parameter: str
) -> None:
    acme.create("a")
    refused = acme.call("GET", f"{path}?{query}", expect=422).json()
    assert [e["pointer"] for e in refused["errors"]] == [parameter]
    assert all(e["expected"] for e in refused["errors"])


@pytest.mark.parametrize(
    ("method", "path", "message", "expected"),
    [
        ("GET", "/v1/jobs?limit=0", "is '0'", "a whole number from 1 to 500"),
        ("GET", "/v1/jobs?limit=" + "9" * 5000, "is '" + "9" * 60 + "'", "a whole number from 1"),
        ("GET", "/v1/jobs/name:a/upcoming?n=x", "is 'x'", "a whole number from 1 to 500"),
        ("GET", "/v1/jobs?name_prefix=" + "a" * 200, "has 200 characters", "at most 128 char"),
        ("GET", "/v1/jobs?sort=id", "is 'id'", "'created_at', '-created_at', 'name' or '-name'"),
        ("PUT", "/v1/jobs/name:a?dry_run=si", "is 'si'", "true or false"),
        ("GET", "/v1/jobs?limt=5", "is not a known parameter", "did you mean 'limit'?"),
        ("POST", "/v1/jobs/batch?dry_run=true", "is not a", 'in the body: {"dry_run": true}'),
        ("POST", "/v1/jobs/name:a/backfills?dry_run=1", "is not", 'in the body: {"dry_run": true}'),
        ("GET", "/v1/jobs/name:a?x=1", "is not a known parameter", "this path takes none"),
    ],
)
def test_what_would_be_right_for_a_parameter_is_told(
    acme: Caller, method: str, path: str, message: str, expected: str
) -> None:
    acme.create("a")
    body = None if method == "GET" else {}
    [error] = acme.call(method, path, body, expect=422).json()["errors"]
    assert error["message"].startswith(message)
    assert error["expected"].startswith(expected)


def test_a_cursor_belongs_to_its_list(acme: Caller) -> None:
    for name in "abc":
        acme.create(name)
    cursor = acme.get("/v1/jobs", limit=1)["next_cursor"]
    acme.get("/v1/jobs", limit=2, cursor=cursor)
    for other in ({"sort": "name"}, {"state": "active"}, {"tag": "x"}):
        acme.get("/v1/jobs", cursor=cursor, expect=422, **other)
    acme.get("/v1/launches", cursor=cursor, expect=422)
