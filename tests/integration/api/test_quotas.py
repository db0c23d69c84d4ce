"""Quotas of tenants: what they stop, what is seen of them, and who may set them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from tests.support.api import World, webhook

pytestmark = pytest.mark.integration


def set_quotas(world: World, tenant: str, **quotas: float | None) -> None:
    """Straight in the database."""
    for quota, amount in quotas.items():
        world.database.run(
            "insert into quotas (tenant_id, quota, amount) values (%s, %s, %s)"
            " on conflict (tenant_id, quota) do update set amount = excluded.amount",
            world.keys[tenant].tenant,
            quota,
            amount,
        )


def told(world: World) -> list[tuple[Any, ...]]:
    return world.database.rows(
        "select subject, (after ->> 'percent')::int from audit_log where action = 'quota.reached'"
        " and actor = 'system' order by id"
    )


def test_twenty_who_create_at_once_get_as_many_jobs_as_there_is_room_for(world: World) -> None:
    set_quotas(world, "acme", jobs=10)

    def create(n: int) -> int:
        return world.acme.call("POST", "/v1/jobs", webhook(f"job-{n}")).status_code

    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(create, range(20)))
    assert sorted(statuses) == [201] * 10 + [403] * 10
    refused = world.acme.post("/v1/jobs", webhook("one-more"), expect=403)
    assert refused["code"] == "quota_exceeded"
    assert "10 jobs" in refused["detail"]
    assert told(world) == [("quota:jobs", 80), ("quota:jobs", 100)]
    world.beta.create("another-tenant")


def test_every_way_to_make_a_job_counts(world: World) -> None:
    set_quotas(world, "acme", jobs=3)
    first = world.acme.create("one")
    world.acme.put("/v1/jobs/name:two", webhook("two"), expect=201)
    many = world.acme.post(
        "/v1/jobs/batch", {"jobs": [webhook("three"), webhook("four")]}, expect=200
    )
    codes = [(item.get("error") or {}).get("code") for item in many["items"]]
    assert codes == [None, "quota_exceeded"]
    world.acme.call("PUT", "/v1/jobs/name:five", webhook("five"), expect=403)

    world.acme.delete(f"/v1/jobs/{first['id']}")
    world.acme.create("six")
    world.acme.call("POST", f"/v1/jobs/{first['id']}/undelete", expect=403)
    world.acme.delete("/v1/jobs/name:six")
    world.acme.post(f"/v1/jobs/{first['id']}/undelete", expect=200)
    assert world.acme.get("/v1/usage")["jobs"] == {"used": 3, "limit": 3, "resets_at": None}


def test_a_level_is_told_once_and_a_lower_one_not_after_it(world: World) -> None:
    set_quotas(world, "acme", jobs=5)

    def again(names: str) -> None:
        for name in names:
            world.acme.delete(f"/v1/jobs/name:{name}")
        for name in names:
            world.acme.create(name)

    for name in "abcd":
        world.acme.create(name)
    assert told(world) == [("quota:jobs", 80)]
    again("d")
    assert told(world) == [("quota:jobs", 80)]
    world.acme.create("e")
    again("de")
    assert told(world) == [("quota:jobs", 80), ("quota:jobs", 100)]
    again("de")
    assert len(told(world)) == 2


def test_a_dry_run_of_a_batch_tells_of_no_level(world: World) -> None:
    set_quotas(world, "acme", jobs=1)
    world.acme.post("/v1/jobs/batch", {"jobs": [webhook("a")], "dry_run": True}, expect=200)
    assert told(world) == []
    world.acme.post("/v1/jobs/batch", {"jobs": [webhook("a")]}, expect=200)
    assert told(world) == [("quota:jobs", 100)]


def test_a_trigger_over_the_quota_says_when_to_come_again(world: World) -> None:
    set_quotas(world, "acme", launches_per_day=2)
    job = world.acme.create("a", overlap="allow")
    theirs = world.beta.create("b", overlap="allow")
    for _ in range(2):
        world.acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
    refused = world.acme.call("POST", f"/v1/jobs/{job['id']}/trigger", expect=429)
    assert refused.json()["code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= timedelta(days=1).total_seconds()
    world.beta.post(f"/v1/jobs/{theirs['id']}/trigger", expect=201)
    usage = world.acme.get("/v1/usage")
    assert usage["launches_per_day"]["used"] == 2
    assert usage["launches_per_day"]["limit"] == 2
    assert usage["launches_per_day"]["resets_at"] > usage["at"]
    assert usage["launches_per_minute"] == {"used": None, "limit": "unlimited", "resets_at": None}
    assert told(world) == [("quota:launches_per_day", 100)]
    text, _ = world.app.state.metrics.render("")
    assert b'tickrail_tenant_throttled_total{reason="launches"} 1.0' in text


def test_triggers_at_once_are_counted_one_by_one(world: World) -> None:
    set_quotas(world, "acme", launches_per_day=7)
    jobs = [world.acme.create(f"job-{n}", overlap="allow")["id"] for n in range(4)]

    def trigger(n: int) -> int:
        return world.acme.call("POST", f"/v1/jobs/{jobs[n % 4]}/trigger").status_code

    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(trigger, range(16)))
    assert sorted(statuses) == [201] * 7 + [429] * 9
    assert world.acme.get("/v1/usage")["launches_per_day"]["used"] == 7


def test_a_payload_is_held_to_the_tenants_number(world: World) -> None:
    set_quotas(world, "acme", payload_bytes=20)
    refused = world.acme.post("/v1/jobs", webhook("a", payload={"x": "y" * 20}), expect=422)
    assert refused["errors"][0]["pointer"] == "/payload"
    assert "at most 20" in refused["errors"][0]["expected"]
    job = world.acme.create("a", payload={"x": "y"})
    world.acme.call("PATCH", f"/v1/jobs/{job['id']}", {"payload": "z" * 30}, expect=422)
    trigger = f"/v1/jobs/{job['id']}/trigger"
    world.acme.post(trigger, {"payload": "z" * 30}, expect=422)
    world.acme.post(trigger, {"payload": "z"}, expect=201)
    world.beta.create("b", payload={"x": "y" * 20})


@pytest.mark.parametrize(
    ("schedule", "right"),
    [
        ({"cron": "* * * * *"}, False),
        ({"cron": "*/5 * * * *"}, True),
        ({"every": "1m"}, False),
        ({"every": "5m", "measured_from": "completion"}, True),
        ({"any_of": [{"cron": "0 * * * *"}, {"cron": "3 12 * * *"}]}, False),
        ({"calendar": {"every": 1, "unit": "day", "at": "02:00"}}, True),
        ({"cron": "0,1 0 29 2 *"}, False),
    ],
)
def test_slots_may_not_be_closer_than_the_quota(
    world: World, schedule: dict[str, Any], right: bool
) -> None:
    set_quotas(world, "acme", min_interval=300)
    answer = world.acme.call("POST", "/v1/jobs", webhook("a", schedule=schedule))
    assert answer.status_code == (201 if right else 422)
    if not right:
        assert answer.json()["errors"][0]["pointer"] == "/schedule"
        assert "5m" in answer.json()["errors"][0]["expected"]


def test_a_change_of_the_schedule_is_looked_at_and_another_one_is_not(world: World) -> None:
    job = world.acme.create("a", schedule={"cron": "* * * * *"})
    set_quotas(world, "acme", min_interval=300)
    path = f"/v1/jobs/{job['id']}"
    world.acme.patch(path, {"description": "it stays as it was"})
    world.acme.patch(path, {"schedule": {"cron": "*/2 * * * *"}}, expect=422)
    world.acme.patch(path, {"schedule": {"cron": "*/10 * * * *"}})


def test_quotas_as_their_tenant_sees_them(world: World) -> None:
    assert world.acme.get("/v1/quotas") == {
        "jobs": "unlimited",
        "launches_per_minute": "unlimited",
        "launches_per_day": "unlimited",
        "running": "unlimited",
        "payload_bytes": 262_144,
        "requests_per_second": "unlimited",
        "request_burst": "unlimited",
        "min_interval": "unlimited",
    }
    set_quotas(world, "acme", jobs=5, min_interval=90, requests_per_second=2.5)
    seen = world.acme.get("/v1/quotas")
    assert (seen["jobs"], seen["min_interval"]) == (5, "1m30s")
    assert (seen["requests_per_second"], seen["request_burst"]) == (2.5, 3)
    assert world.beta.get("/v1/quotas")["jobs"] == "unlimited"


def test_an_operator_sets_what_holds_for_everybody(world: World) -> None:
    made = world.operator.patch("/v1/quotas", {"jobs": 2, "launches_per_minute": 100})
    assert (made["jobs"], made["launches_per_minute"]) == (2, 100)
    assert world.operator.get("/v1/quotas")["jobs"] == 2
    assert world.beta.get("/v1/quotas")["jobs"] == 2
    world.operator.patch("/v1/quotas", {"jobs": None})
    assert world.beta.get("/v1/quotas")["jobs"] == "unlimited"
    assert world.beta.get("/v1/quotas")["launches_per_minute"] == 100
    audited = world.database.rows(
        "select action, subject, before, after from audit_log where action = 'quotas.change'"
        " order by at"
    )
    everybody = {"jobs": 2, "launches_per_minute": 100}
    assert audited[0] == ("quotas.change", "quotas", {}, everybody)
    assert audited[1][3] == {"launches_per_minute": 100}
    world.acme.call("PATCH", "/v1/quotas", {"jobs": 1_000}, expect=403)


@pytest.mark.parametrize(
    ("patch", "pointer"),
    [
        ({"jobs": -1}, "/jobs"),
        ({"jobs": "many"}, "/jobs"),
        ({"launches_per_minute": 1.5}, "/launches_per_minute"),
        ({"payload_bytes": 1_000_000}, "/payload_bytes"),
        ({"min_interval": "0s"}, "/min_interval"),
        ({"request_burst": 0}, "/request_burst"),
        ({"requests_per_second": 0}, "/requests_per_second"),
        ({"job": 1}, "/job"),
    ],
)
def test_what_is_no_quota_is_named(world: World, patch: dict[str, Any], pointer: str) -> None:
    answer = world.operator.patch("/v1/quotas", patch, expect=422)
    assert [e["pointer"] for e in answer["errors"]] == [pointer]
    assert answer["errors"][0]["expected"]


def test_an_operator_sets_those_of_one_tenant(world: World) -> None:
    path = "/v1/tenants/acme"
    world.operator.patch("/v1/quotas", {"jobs": 7})
    made = world.operator.patch(path, {"quotas": {"jobs": "unlimited", "min_interval": "1m"}})
    assert made["quotas"] == {"jobs": "unlimited", "min_interval": "1m"}
    assert world.acme.get("/v1/quotas")["jobs"] == "unlimited"
    assert world.beta.get("/v1/quotas")["jobs"] == 7
    again = world.operator.patch(path, {"quotas": {"jobs": None, "launches_per_day": 9}})
    assert again["quotas"] == {"launches_per_day": 9, "min_interval": "1m"}
    assert again["version"] == made["version"] + 1
    assert world.acme.get("/v1/quotas")["jobs"] == 7
    listed = {t["name"]: t["quotas"] for t in world.operator.get("/v1/tenants")["items"]}
    assert listed == {"acme": again["quotas"], "beta": {}}
    wrong = world.operator.patch(path, {"quotas": {"jobs": -3}}, expect=422)
    assert wrong["errors"][0]["pointer"] == "/quotas/jobs"
    world.operator.patch(path, {"quotas": None})
    assert world.operator.get(path)["quotas"] == {}
    new = {"name": "gamma", "quotas": {"jobs": 3}}
    assert world.operator.post("/v1/tenants", new, expect=201)["quotas"] == {"jobs": 3}
    named = world.caller(world.keys["operator"].token, "gamma")
    assert named.get("/v1/usage")["jobs"] == {"used": 0, "limit": 3, "resets_at": None}
    world.operator.call("GET", "/v1/usage", expect=403)
