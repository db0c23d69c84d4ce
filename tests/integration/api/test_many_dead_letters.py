"""Redrive and purge for many dead letters: dry run, batches, rate, cancel; undecodable messages."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.support.api import Caller, World
from tests.support.dead_api import dead_launch, die, runner_of, work
from tests.support.until import until

from tickrail.core.ports_api import JobRecord, JobRef, Transaction
from tickrail.engine import letter_operations
from tickrail.engine.letter_operations import BURST
from tickrail.engine.operations import BATCH

pytestmark = pytest.mark.integration

COPIES = """
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, attempt, failures, max_attempts, rerun, visibility, due_at, epoch, result,
  finished_at, dead_at)
select (left(id::text, 13) || right(gen_random_uuid()::text, 23))::uuid, scheduled_at, tenant_id,
  job_id, job_version, partition, queue, priority, origin, state, phase, attempt, failures,
  max_attempts, rerun, visibility, due_at, epoch, result, finished_at,
  dead_at - n * interval '1 s'
from launches, generate_series(1, %s) n
"""


def crowd(world: World, caller: Caller, count: int) -> None:
    """So many dead letters of one job."""
    dead_launch(world, caller, "a")
    world.database.run(COPIES, count - 1)


def redriven(world: World) -> int:
    [(count,)] = world.database.rows("select count(*) from launches where redrive_count = 1")
    return int(count)  # type: ignore[call-overload]


def test_redrive_by_filter_with_an_edited_payload(world: World, acme: Caller, beta: Caller) -> None:
    dead_launch(world, beta, "a")
    late = dead_launch(world, acme, "a", ago=10)
    early = dead_launch(world, acme, "a", ago=99, outcome="worker_lost")
    other = dead_launch(world, acme, "b", ago=50)
    where = {"job": "name:a", "reason": ["worker_lost", "attempts_exhausted"], "state": "dead"}
    said = acme.post("/v1/dead-letters/redrive", {"filter": where, "dry_run": True}, expect=200)
    assert said["total"] == 2
    assert [x["id"] for x in said["items"]] == [early["id"], late["id"]]
    assert redriven(world) == 0
    document = {"filter": where, "payload": {"n": 1}, "max_count": 5}
    answer = acme.call("POST", "/v1/dead-letters/redrive", document, expect=202)
    made = answer.json()
    assert answer.headers["Location"] == f"/v1/operations/{made['id']}"
    assert (made["kind"], made["state"], made["total"]) == ("dead_letters.redrive", "running", 2)
    assert made["request"]["filter"] == {**where, "job": early["job"]["id"], "state": ["dead"]}
    work(world)
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["state"], ended["done"], ended["changed"], ended["failed"]) == (
        "finished", 2, 2, 0,
    )  # fmt: skip
    rows = world.database.rows("select payload from launches where redrive_count = 1")
    assert rows == [({"n": 1},)] * 2
    assert [x["id"] for x in acme.every("/v1/dead-letters")] == [other["id"]]
    assert len(beta.every("/v1/dead-letters")) == 1
    rows = world.database.rows(
        "select action, count(*), count(distinct actor) from audit_log"
        " where request_id = %s group by 1", f"operation:{made['id']}",
    )  # fmt: skip
    assert rows == [("launch.redrive", 2, 1)]


def test_what_refuses_is_told_and_what_dies_again_is_not_redriven_twice(
    world: World, acme: Caller
) -> None:
    gone = dead_launch(world, acme, "gone", ago=30)
    spent = dead_launch(world, acme, "a", ago=20)
    good = dead_launch(world, acme, "a", ago=10)
    world.database.run("update launches set redrive_count = 10 where id = %s", spent["id"])
    made = acme.post("/v1/dead-letters/redrive", {"filter": {}, "per_minute": 60}, expect=202)
    acme.delete("/v1/jobs/name:gone")
    runner = runner_of(world)

    def turn() -> bool:
        world.database.run("update operations set held_until = null")
        runner.run_once()
        if acme.get(f"/v1/launches/{good['id']}")["state"] == "due":
            die(world, good["id"], ago=0)  # as soon as it is redriven it is dead again
        return acme.get(f"/v1/operations/{made['id']}")["state"] == "finished"

    until(turn, seconds=20)
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["done"], ended["changed"], ended["failed"]) == (3, 1, 2)
    assert [(e["launch"], e["code"]) for e in ended["errors"]] == [
        (gone["id"], "conflict"), (spent["id"], "conflict"),
    ]  # fmt: skip
    assert "deleted" in ended["errors"][0]["detail"]
    assert "limit" in ended["errors"][1]["detail"]
    assert redriven(world) == 1


def test_batches_go_on_after_a_crash_and_stop_at_a_cancel(world: World, acme: Caller) -> None:
    crowd(world, acme, 3 * BATCH)
    made = acme.post(
        "/v1/dead-letters/redrive", {"filter": {}, "max_count": 2 * BATCH + 5}, expect=202
    )
    assert made["total"] == 2 * BATCH + 5
    first, second = runner_of(world), runner_of(world)
    assert first.run_once() == 0.0
    assert redriven(world) == BATCH
    assert second.run_once() > 0.0, "the first one holds it"
    world.database.run("update operations set held_until = now() - interval '1 s'")
    assert second.run_once() == 0.0
    assert first.run_once() == 0.0, "the one that was held for dead does no batch twice"
    assert redriven(world) == 2 * BATCH + 5
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["state"], ended["done"], ended["changed"]) == ("finished", 105, 105)
    made = acme.post("/v1/dead-letters/redrive", {"filter": {}, "per_minute": 60}, expect=202)
    until(lambda: second.run_once() > 0.0)
    acme.post(f"/v1/operations/{made['id']}/cancel", expect=202)
    world.database.run("update operations set held_until = null")
    assert runner_of(world).run_once() > 0.0
    assert redriven(world) == 2 * BATCH + 6


def test_a_batch_locks_its_jobs_in_the_order_of_ids(
    world: World, acme: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everybody locks them; the letters come in the order of their deaths, here the reverse."""
    jobs = sorted(acme.create(f"j{n}", overlap="allow")["id"] for n in range(4))
    names = {j["id"]: j["name"] for j in acme.every("/v1/jobs")}
    for age, job in enumerate(jobs, 1):
        dead_launch(world, acme, names[job], ago=100.0 * age)
    locked: list[str] = []
    find = letter_operations.require

    def noted(tx: Transaction, ref: JobRef, *, lock: bool = False) -> JobRecord:
        if lock:
            locked.append(str(ref))
        return find(tx, ref, lock=lock)

    monkeypatch.setattr(letter_operations, "require", noted)
    acme.post("/v1/dead-letters/redrive", {"filter": {}}, expect=202)
    work(world)
    assert redriven(world) == len(jobs)
    assert locked == jobs


def test_the_rate_is_kept_by_several_processes_and_over_their_deaths(
    world: World, acme: Caller
) -> None:
    """Some seconds of a rate, in which processes come and go, with a pause in their midst."""
    rate, crew = 2400, 3
    crowd(world, acme, 600)
    acme.post("/v1/dead-letters/redrive", {"filter": {}, "per_minute": rate}, expect=202)
    stop, lull = threading.Event(), threading.Event()

    def process() -> None:
        runner = runner_of(world)
        while not stop.is_set():
            if lull.is_set():
                runner = runner_of(world)  # the old one is dead, with what it held
                stop.wait(0.05)
                continue
            stop.wait(min(runner.run_once(), 0.1))

    crowded = [threading.Thread(target=process) for _ in range(crew)]
    for thread in crowded:
        thread.start()
    try:
        until(lambda: redriven(world) >= 80, seconds=30)
        lull.set()
        stop.wait(3.0)
        lull.clear()
        until(lambda: redriven(world) >= 220, seconds=60)
    finally:
        stop.set()
        for thread in crowded:
            thread.join()
    instants = [
        r[0] for r in world.database.rows(
            "select at from audit_log where action = 'launch.redrive' order by at"
        )
    ]  # fmt: skip
    for n, began in enumerate(instants):
        for window in (1.0, 4.0):
            end = began + timedelta(seconds=window)  # type: ignore[operator]
            count = sum(1 for at in instants[n:] if at <= end)  # type: ignore[operator]
            assert count <= rate / 60 * (window + BURST) + 1


def test_purged_letters_show_no_more_and_stay_dead(world: World, acme: Caller) -> None:
    old = dead_launch(world, acme, "a", ago=1000)
    new = dead_launch(world, acme, "a", ago=10)
    died = acme.get(f"/v1/dead-letters/{new['id']}")["died_at"]
    where = {"to": died}
    said = acme.post("/v1/dead-letters/purge", {"filter": where, "dry_run": True}, expect=200)
    assert (said["total"], said["purged"], [x["id"] for x in said["items"]]) == (1, 0, [old["id"]])
    made = acme.post("/v1/dead-letters/purge", {"filter": where}, expect=202)
    work(world)
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["state"], ended["changed"]) == ("finished", 1)
    assert [x["id"] for x in acme.every("/v1/dead-letters")] == [new["id"]]
    assert "purged" in acme.get(f"/v1/dead-letters/{old['id']}", expect=404)["detail"]
    assert acme.get(f"/v1/launches/{old['id']}")["state"] == "dead"
    rows = world.database.rows("select after from audit_log where action = 'dead_letters.purge'")
    assert rows == [({"count": 1, "launches": [old["id"]]},)]
    assert acme.post(f"/v1/launches/{old['id']}/redrive", expect=202)["attempt"] == 4


def test_what_is_refused(acme: Caller) -> None:
    refused: list[tuple[Any, str]] = [
        (None, ""),
        ({"filter": []}, "/filter"),
        ({"filter": {"jobs": "a"}}, "/filter/jobs"),
        ({"filter": {"job": "name:none"}}, "/filter/job"),
        ({"filter": {"job": "x"}}, "/filter/job"),
        ({"filter": {"reason": ["bad"]}}, "/filter/reason/0"),
        ({"filter": {"state": ["cancelled"]}}, "/filter/state/0"),
        ({"filter": {"launch": ["x"]}}, "/filter/launch/0"),
        ({"filter": {"launch": ["x"] * 101}}, "/filter/launch"),
        ({"filter": {"tag": ["a b"]}}, "/filter/tag/0"),
        ({"filter": {"queue": "No Queue"}}, "/filter/queue"),
        ({"filter": {"from": "today"}}, "/filter/from"),
        ({"filter": {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}}, "/filter/to"),
        ({"filter": {}, "per_minute": 0}, "/per_minute"),
        ({"filter": {}, "max_count": "5"}, "/max_count"),
        ({"filter": {}, "payload": "\x00"}, "/payload"),
    ]
    for document, pointer in refused:
        said = acme.post("/v1/dead-letters/redrive", document, expect=422)
        assert pointer in [e["pointer"] for e in said["errors"]]
    for document, pointer in [({"filter": {}, "payload": 1}, "/payload"),
                              ({"filter": {}, "per_minute": 9}, "/per_minute")]:  # fmt: skip
        said = acme.post("/v1/dead-letters/purge", document, expect=422)
        assert pointer in [e["pointer"] for e in said["errors"]]
    assert acme.get("/v1/operations")["items"] == []


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_an_empty_condition_is_not_all(acme: Caller, verb: str) -> None:
    empty: list[tuple[dict[str, Any], str]] = [
        ({"filter": {name: value, "queue": "default"}}, f"/filter/{name}")
        for name in ("launch", "job", "reason", "state", "tag", "from", "to")
        for value in (None, [], "")
    ]
    for document, pointer in [
        *empty,
        ({"filter": {"queue": None}}, "/filter/queue"),
        ({"filter": None}, "/filter"),
        ({"filter": {}, "dry_run": None}, "/dry_run"),
    ]:
        said = acme.post(f"/v1/dead-letters/{verb}", document, expect=422)
        assert [e["pointer"].removesuffix("/0") for e in said["errors"]] == [pointer], document
    assert acme.get("/v1/operations")["items"] == []


def test_undecodable_messages_are_the_operators(world: World, acme: Caller) -> None:
    launch = dead_launch(world, acme, "a", ago=20)
    topic = "tickrail.launch.default.normal"
    for offset, (ago, value, size) in enumerate(
        [(30, b"hello", 5), (10, b"\xff\xfe", 2), (5, b"x" * 100, 70_000)]
    ):
        world.database.run(
            "insert into undecodable values (%s, 'default', %s, 3, %s, %s, %s, 'not JSON',"
            " now() - %s * interval '1 s')",
            f"{topic}/3/{offset}", topic, offset, value, size, ago,
        )  # fmt: skip
    acting = world.caller(world.keys["operator"].token, "acme")
    ids = [f"{topic}/3/{n}" for n in (2, 1, 0)]
    assert [x["id"] for x in acme.every("/v1/dead-letters")] == [launch["id"]]
    acme.get("/v1/dead-letters", kind="undecodable", expect=403)
    acme.get(f"/v1/dead-letters/{ids[0]}", expect=403)
    mixed = [ids[0], ids[1], launch["id"], ids[2]]
    for limit in (1, 2, 50):
        assert [x["id"] for x in acting.every("/v1/dead-letters", limit=limit)] == mixed
    assert [x["id"] for x in acting.every("/v1/dead-letters", sort="died_at", limit=1)] == mixed[
        ::-1
    ]
    assert [x["id"] for x in world.operator.every("/v1/dead-letters", limit=1)] == ids
    assert [x["id"] for x in acting.every("/v1/dead-letters", kind="launch")] == [launch["id"]]
    assert [x["id"] for x in acting.every("/v1/dead-letters", reason="undecodable")] == ids
    assert world.operator.every("/v1/dead-letters", queue="other") == []
    world.operator.get("/v1/dead-letters", kind="launch", expect=403)
    first = world.operator.get(f"/v1/dead-letters/{ids[2]}")
    assert (first["kind"], first["topic"], first["partition"], first["offset"]) == (
        "undecodable", topic, 3, 0,
    )  # fmt: skip
    assert first["value"] == {"text": "hello", "base64": None, "truncated": False}
    second = world.operator.get(f"/v1/dead-letters/{ids[1]}")
    assert second["value"] == {"text": None, "base64": "//4=", "truncated": False}
    third = world.operator.get(f"/v1/dead-letters/{ids[0]}")
    assert (third["size"], third["value"]["truncated"]) == (70_000, True)
    world.operator.get(f"/v1/dead-letters/{topic}/3/9", expect=404)
    purge = {"filter": {"kind": "undecodable", "id": [ids[0], ids[1]]}}
    acme.post("/v1/dead-letters/purge", purge, expect=403)
    said = world.operator.post("/v1/dead-letters/purge", {**purge, "dry_run": True}, expect=200)
    assert (said["total"], said["purged"], len(said["items"])) == (2, 0, 2)
    for empty in ({"kind": None}, {"kind": "undecodable", "id": []}):
        said = world.operator.post("/v1/dead-letters/purge", {"filter": empty}, expect=422)
        assert [e["pointer"] for e in said["errors"]] == [f"/filter/{list(empty)[-1]}"]
    said = world.operator.post(
        "/v1/dead-letters/purge", {"filter": {"kind": "undecodable", "of": 1}}, expect=422
    )
    assert said["errors"][0]["pointer"] == "/filter/of"
    said = world.operator.post("/v1/dead-letters/purge", purge, expect=200)
    assert (said["total"], said["purged"]) == (2, 2)
    assert [x["id"] for x in world.operator.every("/v1/dead-letters")] == [ids[2]]
    assert world.database.rows(
        "select after -> 'count' from audit_log where action = 'undecodable.purge'"
    ) == [(2,)]
