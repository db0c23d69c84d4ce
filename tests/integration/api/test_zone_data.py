"""What newer zone data moved, as operators read it."""

from __future__ import annotations

import pytest
from tests.support.api import World

from tickrail.core.schedule import TZDATA_VERSION

pytestmark = pytest.mark.integration
SYSTEM = "/v1/system/tzdata"


def test_operators_see_the_versions_and_what_moved_in_every_tenant(world: World) -> None:
    schedule = {
        "any_of": [
            {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
            {"cron": "0 3 * * *", "time_zone": "Africa/Cairo"},
            {"cron": "0 4 * * *", "time_zone": "Africa/Cairo"},
        ]
    }
    world.acme.create("a", schedule=schedule)
    world.beta.create("b", schedule={"cron": "0 2 * * *", "time_zone": "Africa/Cairo"})
    world.database.run(
        "insert into tzdata_changes (job_id, tenant_id, changed_at, from_version, to_version,"
        " before_at, after_at) select id, tenant_id, '2026-03-01T12:00:00Z', '', '2026c',"
        " '2026-03-02T01:00:00Z', case name when 'a' then timestamptz '2026-03-02T00:00:00Z' end"
        " from jobs"
    )
    world.database.run("update partitions set tzdata = '' where partition = 0")
    found = world.operator.get(SYSTEM)
    assert (found["version"], found["partitions"]) == (
        TZDATA_VERSION,
        {"unknown": 1, TZDATA_VERSION: 3},
    )
    by_name = {item["job"]["name"]: item for item in found["items"]}
    assert by_name["a"]["time_zones"] == ["Africa/Cairo", "Europe/Berlin"]
    assert by_name["a"]["next_run_at"]["after"] == "2026-03-02T00:00:00Z"
    assert by_name["b"]["next_run_at"]["after"] is None
    assert {name: item["tenant"] for name, item in by_name.items()} == {"a": "acme", "b": "beta"}
    assert by_name["a"]["versions"] == {"before": "unknown", "after": "2026c"}
    assert world.operator.every(SYSTEM, limit=1) == found["items"]
    world.operator.get(SYSTEM, expect=422, cursor="bm9uZQ")


def test_a_tenants_key_does_not(world: World) -> None:
    world.acme.get(SYSTEM, expect=403)


def test_partitions_tell_their_zone_data(world: World) -> None:
    items = world.operator.get("/v1/system/partitions")["items"]
    assert {p["tzdata"] for p in items} == {TZDATA_VERSION}
