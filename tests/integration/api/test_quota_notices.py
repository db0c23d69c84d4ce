"""Who is told when a quota is nearly used up: set by the tenant, told once for each level."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.support.api import Caller, World, api_world, webhook

pytestmark = pytest.mark.integration
PATH = "/v1/quotas/notify"
OPS = {"notify": ["webhook:ops"]}


@pytest.fixture
def acme(world: World) -> Caller:
    world.acme.put("/v1/secrets/ops", {"value": "https://hooks.example.org/T0"}, expect=201)
    return world.acme


def kept(world: World) -> list[tuple[Any, ...]]:
    """The notices: whose they are, what of, where to, and how much of the quota is used."""
    return world.database.rows(
        "select t.name, n.about, n.channel, (n.data #>> '{quota,percent}')::int from notices n"
        " join tenants t on t.id = n.tenant_id where n.kind = 'quota.reached'"
        " order by 1, 2, 4, 3"
    )


def allow(world: World, **quotas: object) -> None:
    for tenant in ("acme", "beta"):
        world.operator.patch(f"/v1/tenants/{tenant}", {"quotas": quotas})


def test_channels_are_told_of_each_level_once(world: World, acme: Caller) -> None:
    world.operator.patch("/v1/tenants/acme", {"kafka_topics": ["acme.*"]})
    both = {"notify": ["webhook:ops", "kafka:acme.alerts"]}
    assert acme.put(PATH, both) == both
    allow(world, jobs=5)
    for n in range(5):
        acme.create(f"job-{n}")
        world.beta.create(f"job-{n}")
    acme.post("/v1/jobs", webhook("one-more"), expect=403)
    channels = ("kafka:acme.alerts", "webhook:ops")
    assert kept(world) == [
        ("acme", "quota:jobs", c, percent) for percent in (80, 100) for c in channels
    ]


def test_launches_by_hand_and_requests_are_told_of_too(world: World, acme: Caller) -> None:
    job = acme.create("a", overlap="allow")
    acme.put(PATH, OPS)
    allow(world, launches_per_day=1, requests_per_second=0.01, request_burst=4)
    with api_world(world.database) as other:
        asks = other.caller(acme.token)
        asks.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
        while asks.call("GET", "/v1/usage").status_code == 200:
            pass
    told = {(about, percent) for _, about, _, percent in kept(world)}
    assert ("quota:launches_per_day", 100) in told
    assert ("quota:requests_per_second", 100) in told


def test_a_tenant_sets_its_own_and_nobody_else_s(world: World, acme: Caller) -> None:
    assert acme.get(PATH) == {"notify": []}
    acme.put(PATH, OPS)
    assert (acme.get(PATH), world.beta.get(PATH)) == (OPS, {"notify": []})
    world.caller(world.key("acme", "read", "run", "write").token).put(PATH, OPS, expect=403)
    world.operator.put(PATH, OPS, expect=403)
    named = world.caller(world.keys["operator"].token, "acme")
    assert named.put(PATH, {"notify": []}) == {"notify": []}
    audited = world.database.rows(
        "select before, after from audit_log where action = 'quotas.notify' order by at"
    )
    assert audited == [({"notify": []}, OPS), (OPS, {"notify": []})]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/notify"),
        ({"notify": "webhook:ops"}, "/notify"),
        ({"notify": ["mail:me"]}, "/notify/0"),
        ({"notify": ["webhook:ops", "webhook:ops"]}, "/notify/1"),
        ({"notify": ["webhook:gone"]}, "/notify/0"),
        ({"notify": ["webhook:ops", "kafka:not.mine"]}, "/notify/1"),
        ({"notify": [], "more": 1}, "/more"),
        ([], ""),
    ],
)
def test_what_is_no_channel_is_named(acme: Caller, document: Any, pointer: str) -> None:
    answer = acme.put(PATH, document, expect=422)
    assert [e["pointer"] for e in answer["errors"]] == [pointer]
    assert answer["errors"][0]["expected"]


def test_a_job_names_each_channel_once(acme: Caller) -> None:
    twice = {"notify": ["webhook:ops", "webhook:ops"]}
    answer = acme.post("/v1/jobs", webhook("a", on_failures=twice), expect=422)
    assert [e["pointer"] for e in answer["errors"]] == ["/on_failures/notify/1"]
    assert answer["errors"][0]["expected"] == "each channel once"


def test_a_secret_that_a_channel_names_stays(acme: Caller) -> None:
    acme.put(PATH, OPS)
    refused = acme.call("DELETE", "/v1/secrets/ops", expect=409).json()
    assert "quotas" in refused["detail"]
    acme.put(PATH, {"notify": []})
    acme.call("DELETE", "/v1/secrets/ops", expect=204)


def test_the_api_s_role_writes_notices_for_its_own_tenant_alone(world: World, acme: Caller) -> None:
    acme.put(PATH, OPS)
    with psycopg.connect(world.database.api_url) as conn:
        conn.execute(
            "select set_config('tickrail.tenant', %s, true)", [str(world.keys["beta"].tenant)]
        )
        conn.execute("select add_own_quota_notice('quota:jobs', 'x', '{}', 5)")
    assert kept(world) == []
