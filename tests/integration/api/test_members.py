"""/v1/system: members, partitions and drains, on a database and an etcd in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.api import World
from tests.support.memory_coord import MemoryCoordinator

from tickrail.core.ids import Partition, epoch_of
from tickrail.core.ports_ownership import Drain, Member

pytestmark = pytest.mark.integration

MEMBERS, PARTITIONS = "/v1/system/members", "/v1/system/partitions"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def join(world: World, name: str, *partitions: int, weight: float = 1.0) -> str:
    """A scheduler that has taken partitions; its identity."""
    etcd, identity = MemoryCoordinator(world.etcd), f"{name}-0000000a"
    lease = etcd.grant(60).id
    etcd.put_member(Member(identity, name, weight, since=NOON), lease)
    for p in partitions:
        revision = etcd.claim(Partition(p), identity, lease).create_revision
        world.database.run(
            "update partitions set epoch = %s, owner = %s, taken_at = %s where partition = %s",
            epoch_of(0, revision), identity, NOON, p,
        )  # fmt: skip
    return identity


def shown(world: World) -> dict[str, Any]:
    return {m["name"]: m for m in world.operator.get(MEMBERS)["items"]}


def test_members(world: World) -> None:
    answer = {"items": [], "next_cursor": None, "drains_ignored": False}
    assert world.operator.get(MEMBERS) == answer
    join(world, "s-2", weight=0.5)
    identity = join(world, "s-1", 0, 1, 2)
    first, second = world.operator.get(MEMBERS)["items"]
    left = first.pop("lease_remaining")
    assert left in {"1m", "59s", "58s"}
    assert first == {
        "name": "s-1", "identity": identity, "state": "active", "weight": 1.0, "partitions": 3,
        "since": "2026-03-01T12:00:00Z", "drain": None,
    }  # fmt: skip
    assert (second["name"], second["weight"], second["partitions"]) == ("s-2", 0.5, 0)


def test_partitions_in_each_state(world: World) -> None:
    identity = join(world, "s-1", 0, 1, 2)
    world.database.run("update partitions set epoch = epoch - 1 where partition = 1")
    world.database.run("update partitions set epoch = epoch + 9 where partition = 2")
    items = world.operator.every(PARTITIONS, limit=3)
    assert [p["partition"] for p in items] == [0, 1, 2, 3]
    assert [p["state"] for p in items] == ["owned", "fence_behind", "fence_ahead", "unowned"]
    owned, behind, _, free = items
    assert owned["owner"] == {"name": "s-1", "identity": identity}
    assert (
        owned["epoch"] == owned["claimed_epoch"] == world.etcd.owners[Partition(0)].create_revision
    )
    assert owned["lease_remaining"] in {"1m", "59s", "58s"}
    assert owned["taken_by"] == identity
    assert owned["taken_at"] == "2026-03-01T12:00:00Z"
    assert behind["epoch"] == behind["claimed_epoch"] - 1
    assert (free["owner"], free["claimed_epoch"], free["lease_remaining"]) == (None, None, None)


def test_what_another_should_have_is_moving(world: World) -> None:
    join(world, "s-1", 0, 1, 2, 3)
    join(world, "s-2", weight=100.0)
    states = [p["state"] for p in world.operator.get(PARTITIONS)["items"]]
    assert set(states) <= {"owned", "moving"}
    assert "moving" in states


def test_an_owner_that_stepped_down_is_named_until_its_lease_ends(world: World) -> None:
    identity = join(world, "s-1", 0)
    MemoryCoordinator(world.etcd).remove_member(identity)
    owner = world.operator.get(PARTITIONS)["items"][0]["owner"]
    assert owner == {"name": "s-1", "identity": identity}


def test_the_generation_is_part_of_what_etcd_claims(world: World) -> None:
    join(world, "s-1", 0)
    world.database.run("update installation set generation = 2")
    first = world.operator.get(PARTITIONS)["items"][0]
    revision = world.etcd.owners[Partition(0)].create_revision
    assert first["claimed_epoch"] == epoch_of(2, revision)
    assert first["state"] == "fence_behind"


@pytest.mark.parametrize("named", ["s-1", "s-1-0000000a"])
def test_a_drain_is_set_by_name_or_identity_seen_and_ended(world: World, named: str) -> None:
    join(world, "s-1", 0)
    join(world, "s-2")
    path = f"{MEMBERS}/{named}/drain"
    answer = world.operator.post(path, expect=202)
    assert (answer["name"], answer["drains_ignored"]) == ("s-1", False)
    [item] = answer["items"]
    assert (item["state"], item["partitions"]) == ("draining", 1)
    assert item["drain"]["by"] == f"operator:{world.keys['operator'].key_id}"
    again = world.operator.post(path, {}, expect=202)
    assert again["items"][0]["drain"] == item["drain"], "the first one stays"
    assert set(world.etcd.drains) == {"s-1"}
    world.operator.delete(path)
    world.operator.delete(path)
    assert shown(world)["s-1"]["state"] == "active"
    rows = world.database.rows(
        "select action, subject, actor, tenant_id from audit_log order by id"
    )
    actor = f"operator:{world.keys['operator'].key_id}"
    drained, ended = (("member.drain", "member:s-1", actor, None),
                      ("member.undrain", "member:s-1", actor, None))  # fmt: skip
    assert rows == [drained, drained, ended, ended]


def test_what_is_drained_shows_also_when_it_is_empty_or_away(world: World) -> None:
    join(world, "s-1", 0)
    join(world, "s-2")
    join(world, "s-4")
    for name in ("s-1", "s-2", "s-3"):
        world.etcd.drains[name] = Drain(name)
    assert {n: m["state"] for n, m in shown(world).items()} == {
        "s-1": "draining", "s-2": "drained", "s-3": "absent", "s-4": "active",
    }  # fmt: skip
    world.etcd.drains[""] = Drain("")
    assert "" not in shown(world), "a stray key is no member"
    gone = shown(world)["s-3"]
    assert (gone["identity"], gone["drain"]) == (None, {"since": None, "by": ""})
    world.operator.delete(f"{MEMBERS}/s-3/drain")
    assert set(shown(world)) == {"s-1", "s-2", "s-4"}


def test_the_answer_says_when_drains_are_ignored(world: World) -> None:
    join(world, "s-1", 0)
    join(world, "s-0", weight=0.0)
    world.etcd.drains["s-0"] = Drain("s-0")
    answer = world.operator.post(f"{MEMBERS}/s-1/drain", expect=202)
    assert answer["drains_ignored"]
    assert answer["items"][0]["state"] == "drain_ignored"
    assert world.operator.get(MEMBERS)["drains_ignored"]
    assert shown(world)["s-0"]["state"] == "drained", "it would own nothing in any case"
    join(world, "s-2")
    assert not world.operator.get(MEMBERS)["drains_ignored"]
    assert shown(world)["s-1"]["state"] == "draining"


def test_an_unknown_member_is_404_and_those_present_are_named(world: World) -> None:
    join(world, "s-2")
    join(world, "s-1")
    for verb in ("POST", "DELETE"):
        answer = world.operator.call(verb, f"{MEMBERS}/s-9/drain", expect=404).json()
        assert answer["detail"] == "No scheduler 's-9' is a member; present: s-1, s-2."
    assert world.etcd.drains == {}
    assert world.database.rows("select 1 from audit_log") == []


def test_nothing_is_drained_with_a_document_or_parameters(world: World) -> None:
    join(world, "s-1")
    world.operator.post(f"{MEMBERS}/s-1/drain", {"wait": "5s"}, expect=400)
    world.operator.call("POST", f"{MEMBERS}/s-1/drain", params={"wait": "5s"}, expect=422)
    assert world.etcd.drains == {}


def test_only_operators_with_the_scope_may(world: World) -> None:
    join(world, "s-1")
    reader = world.caller(world.key(None, "read").token)
    reader.get(MEMBERS)
    reader.get(PARTITIONS)
    for caller in (reader, world.acme):
        for verb in ("POST", "DELETE"):
            caller.call(verb, f"{MEMBERS}/s-1/drain", expect=403)
    told = world.acme.get(MEMBERS, expect=403)["detail"]
    assert "`tickrail bootstrap` without `--tenant`" in told
    assert world.etcd.drains == {}


def test_without_etcd_it_is_503_and_nothing_is_written(world: World) -> None:
    join(world, "s-1")
    coordinator = MemoryCoordinator(world.etcd)
    world.etcd.down = True
    for verb, path in [("GET", MEMBERS), ("GET", PARTITIONS), ("POST", f"{MEMBERS}/s-1/drain")]:
        answer = world.operator.call(verb, path, expect=503).json()
        assert (answer["code"], answer["detail"]) == ("unavailable", "etcd does not answer")
    assert world.client.get("/readyz").status_code == 200
    world.etcd.down = False
    assert coordinator.snapshot().drains == {}
    assert world.database.rows("select 1 from audit_log") == []


def test_tenants_do_not_see_what_operators_did(world: World) -> None:
    """An entry without a tenant is no tenant's, and the API's role alone may add one."""
    join(world, "s-1")
    world.operator.post(f"{MEMBERS}/s-1/drain", expect=202)
    with world.app.state.parts.database.engine.begin() as raw:
        for tenant in ("", world.tenant_id("acme")):
            raw.exec_driver_sql("select set_config('tickrail.tenant', %s, true)", (tenant,))
            assert raw.exec_driver_sql("select count(*) from audit_log").scalar_one() == 0
