"""Pause and resume for many jobs: dry run, batches, cancel, processes that die."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import Caller, World, unused_id

from tickrail.engine.operations import BATCH, OperationRunner

pytestmark = pytest.mark.integration


def runner_of(world: World) -> OperationRunner:
    """Another API process."""
    found: OperationRunner = world.app.state.parts.runner
    return OperationRunner(found._queue, found._operations)


def work(world: World) -> int:
    """Batches until there is nothing to do; how many turns did something."""
    runner, turns = runner_of(world), 0
    while runner.run_once() == 0.0:
        turns += 1
    return turns


def free_all(world: World) -> None:
    """The hold of every operation has passed."""
    world.database.run("update operations set held_until = now() - interval '1 s'")


def states(caller: Caller) -> dict[str, str]:
    return {j["name"]: j["state"] for j in caller.every("/v1/jobs")}


def many(world: World, caller: Caller, count: int) -> None:
    """Copies of the job `pattern`, straight in the database."""
    caller.create("pattern", schedule={"every": "1h"}, tags={"team": "billing"})
    world.database.run(
        "with new as (insert into jobs (id, tenant_id, name, partition, version, state,"
        " next_run_at, plan) select gen_random_uuid(), tenant_id, 'job-' || n, partition, 1,"
        " state, next_run_at,"
        " plan from jobs, generate_series(1, %s) n where name = 'pattern' returning *),"
        " tags as (insert into job_tags (job_id, tenant_id, key, value)"
        " select id, tenant_id, 'team', 'billing' from new)"
        " insert into job_versions (job_id, version, tenant_id, definition)"
        " select new.id, 1, new.tenant_id, definition || jsonb_build_object('name', new.name)"
        " from new, job_versions",
        count - 1,
    )


def test_pause_and_resume_by_tag(world: World, acme: Caller, beta: Caller) -> None:
    for name, tags in (("a", {"team": "x"}), ("b", {"team": "x"}), ("c", {})):
        acme.create(name, schedule={"every": "1h"}, tags=tags)
    beta.create("a", schedule={"every": "1h"}, tags={"team": "x"})
    document = {"filter": {"tag": ["team:x"]}, "reason": "move", "until": "2099-01-01T00:00:00Z"}
    said = acme.post("/v1/jobs/pause", {**document, "dry_run": True}, expect=200)
    assert said == {"total": 2, "names": ["a", "b"]}
    assert acme.get("/v1/operations")["items"] == []
    answer = acme.call("POST", "/v1/jobs/pause", document, expect=202)
    made = answer.json()
    assert answer.headers["Location"] == f"/v1/operations/{made['id']}"
    assert (made["kind"], made["state"], made["total"], made["done"]) == (
        "jobs.pause", "running", 2, 0,
    )  # fmt: skip
    assert made["request"] == document
    assert work(world) == 1
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["state"], ended["done"], ended["changed"], ended["failed"]) == (
        "finished", 2, 2, 0,
    )  # fmt: skip
    assert ended["finished_at"] is not None
    assert states(acme) == {"a": "paused", "b": "paused", "c": "active"}
    assert states(beta) == {"a": "active"}
    note = acme.get("/v1/jobs/name:a")["paused"]
    assert (note["reason"], note["until"], note["by"]) == (
        "move", "2099-01-01T00:00:00Z", f"key:{world.keys['acme'].key_id}",
    )  # fmt: skip
    back = acme.post("/v1/jobs/resume", {"filter": {}, "catch_up": "none"}, expect=202)
    work(world)
    ended = acme.get(f"/v1/operations/{back['id']}")
    assert (ended["kind"], ended["total"], ended["done"], ended["changed"]) == (
        "jobs.resume", 3, 3, 2,
    )  # fmt: skip
    assert set(states(acme).values()) == {"active"}
    assert [x["id"] for x in acme.every("/v1/operations", limit=1)] == [back["id"], made["id"]]
    assert beta.get("/v1/operations")["items"] == []
    rows = world.database.rows(
        "select action, count(*), count(distinct actor), max(request_id) from audit_log"
        " where action in ('job.pause', 'operation.create') group by 1 order by 1"
    )
    assert [(r[0], r[1], r[2]) for r in rows] == [("job.pause", 2, 1), ("operation.create", 2, 1)]
    assert rows[0][3] == f"operation:{made['id']}"


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({}, {"a-1", "a-2", "b-1"}),
        ({"name_prefix": "a-"}, {"a-1", "a-2"}),
        ({"queue": "default", "name_prefix": "b"}, {"b-1"}),
        ({"queue": "other"}, set()),
        ({"tag": ["n:1"]}, {"a-1", "b-1"}),
        ({"tag": ["n"]}, {"a-1", "a-2", "b-1"}),
        ({"tag": ["n:1", "of:a"]}, {"a-1"}),
        ({"tag": "n:2"}, {"a-2"}),
        ({"state": ["paused"]}, {"a-2"}),
        ({"state": ["active", "finished"]}, {"a-1", "b-1"}),
    ],
)
def test_filters(acme: Caller, where: dict[str, Any], names: set[str]) -> None:
    for name in ("a-1", "a-2", "b-1"):
        of, _, n = name.partition("-")
        acme.create(name, schedule={"every": "1h"}, tags={"n": n, "of": of})
    acme.post("/v1/jobs/name:a-2/pause", expect=200)
    acme.create("gone")
    acme.delete("/v1/jobs/name:gone")
    said = acme.post("/v1/jobs/resume", {"filter": where, "dry_run": True}, expect=200)
    assert (said["total"], set(said["names"])) == (len(names), names)


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (None, ""),
        ({}, "/filter"),
        ({"filter": None}, "/filter"),
        ([], ""),
        ({"filter": []}, "/filter"),
        ({"filter": {"tags": ["a"]}}, "/filter/tags"),
        ({"filter": {"tag": ["a b"]}}, "/filter/tag/0"),
        ({"filter": {"tag": [5]}}, "/filter/tag"),
        ({"filter": {"tag": ["a"] * 21}}, "/filter/tag"),
        ({"filter": {"state": ["deleted"]}}, "/filter/state/0"),
        ({"filter": {"queue": "No Queue"}}, "/filter/queue"),
        ({"filter": {"name_prefix": "\x00"}}, "/filter/name_prefix"),
        ({"filter": {"tag": []}}, "/filter/tag"),
        ({"filter": {"tag": None}}, "/filter/tag"),
        ({"filter": {"state": []}}, "/filter/state"),
        ({"filter": {"state": None}}, "/filter/state"),
        ({"filter": {"queue": ""}}, "/filter/queue"),
        ({"filter": {"queue": None}}, "/filter/queue"),
        ({"filter": {"name_prefix": ""}}, "/filter/name_prefix"),
        ({"filter": {"name_prefix": None, "queue": "default"}}, "/filter/name_prefix"),
        ({"filter": {}, "until": "2020-01-01T00:00:00Z"}, "/until"),
        ({"filter": {}, "in_flight": "stop"}, "/in_flight"),
        ({"filter": {}, "reson": "x"}, "/reson"),
        ({"filter": {}, "dry_run": 1}, "/dry_run"),
        ({"filter": {}, "dry_run": None}, "/dry_run"),
        ({"filter": {"queue": 5}, "until": 5}, "/until"),
    ],
)
def test_what_is_refused(acme: Caller, document: Any, pointer: str) -> None:
    said = acme.post("/v1/jobs/pause", document, expect=422)
    assert pointer in [e["pointer"] for e in said["errors"]]
    assert acme.get("/v1/operations")["items"] == []


def test_what_is_said_of_a_resume_is_checked_at_once(acme: Caller) -> None:
    said = acme.post("/v1/jobs/resume", {"filter": {}, "catch_up": "some"}, expect=422)
    assert "/catch_up" in [e["pointer"] for e in said["errors"]]


def test_the_paths_are_no_jobs(acme: Caller) -> None:
    acme.create("pause")
    acme.call("GET", "/v1/jobs/pause", expect=405)
    assert acme.get("/v1/jobs/name:pause")["name"] == "pause"
    acme.post("/v1/jobs/name:pause/pause", expect=200)
    acme.get("/v1/operations/nothing", expect=404)
    acme.get(f"/v1/operations/{unused_id()}", expect=404)
    acme.get("/v1/operations", cursor="x", expect=422)


def test_a_job_that_refuses_is_counted(world: World, acme: Caller) -> None:
    acme.create("a", schedule={"every": "1h"})
    job = acme.create("b", schedule={"every": "1h"})
    world.database.run("update jobs set state = 'finished', next_run_at = null where name = 'b'")
    made = acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    work(world)
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["state"], ended["done"], ended["changed"], ended["failed"]) == (
        "finished", 2, 1, 1,
    )  # fmt: skip
    [error] = ended["errors"]
    assert error["job"] == {"id": job["id"], "name": "b"}
    assert error["code"] == "conflict"
    assert "finished" in error["detail"]


def test_batches_and_jobs_made_meanwhile(world: World, acme: Caller) -> None:
    many(world, acme, 2 * BATCH + 5)
    made = acme.post("/v1/jobs/pause", {"filter": {"tag": ["team:billing"]}}, expect=202)
    assert made["total"] == 2 * BATCH + 5
    runner, path = runner_of(world), f"/v1/operations/{made['id']}"
    assert runner.run_once() == 0.0
    acme.create("later", schedule={"every": "1h"}, tags={"team": "billing"})
    assert (acme.get(path)["done"], acme.get(path)["state"]) == (BATCH, "running")
    while runner.run_once() == 0.0:
        pass
    ended = acme.get(path)
    assert (ended["done"], ended["changed"], ended["state"]) == (
        2 * BATCH + 5, 2 * BATCH + 5, "finished",
    )  # fmt: skip
    assert [n for n, s in states(acme).items() if s == "active"] == ["later"]


def test_what_a_process_leaves_another_goes_on_with(world: World, acme: Caller) -> None:
    many(world, acme, 2 * BATCH + 5)
    made = acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    runner_of(world).run_once()  # and is killed
    other = runner_of(world)
    assert other.run_once() > 0  # held
    free_all(world)
    while other.run_once() == 0.0:
        pass
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert (ended["state"], ended["done"], ended["changed"]) == (
        "finished", 2 * BATCH + 5, 2 * BATCH + 5,
    )  # fmt: skip
    assert set(states(acme).values()) == {"paused"}
    [(pauses,)] = world.database.rows("select count(*) from audit_log where action = 'job.pause'")
    assert pauses == 2 * BATCH + 5


def test_two_at_once_repeat_nothing(world: World, acme: Caller) -> None:
    many(world, acme, 3 * BATCH)
    acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    one = runner_of(world)
    one.run_once()
    free_all(world)
    two = runner_of(world)
    while 0.0 in (one.run_once(), two.run_once()):
        pass
    [(pauses,)] = world.database.rows("select count(*) from audit_log where action = 'job.pause'")
    assert pauses == 3 * BATCH


def test_an_answer_that_is_kept_is_for_those_who_may_ask_for_it(world: World, acme: Caller) -> None:
    acme.create("a", schedule={"every": "1h"})
    operation = acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    path = f"/v1/operations/{operation['id']}/cancel"
    said = acme.post(path, expect=202, Idempotency_Key="c-1")
    for scopes in (("read",), ("read", "run")):
        less = world.caller(world.key("acme", *scopes).token)
        less.post(path, expect=403, Idempotency_Key="c-1")
    assert acme.post(path, expect=202, Idempotency_Key="c-1") == said


def test_cancel_leaves_the_rest_as_it_is(world: World, acme: Caller) -> None:
    many(world, acme, 2 * BATCH)
    made = acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    path, runner = f"/v1/operations/{made['id']}", runner_of(world)
    runner.run_once()
    said = acme.post(f"{path}/cancel", expect=202)
    assert (said["state"], said["done"]) == ("cancelled", BATCH)
    assert acme.post(f"{path}/cancel", expect=202) == said
    runner.run_once()
    assert acme.get(path) == said
    assert list(states(acme).values()).count("paused") == BATCH
    again = acme.post("/v1/jobs/pause", {"filter": {"state": ["finished"]}}, expect=202)
    work(world)
    answer = acme.post(f"/v1/operations/{again['id']}/cancel", expect=409)
    assert answer["detail"] == "The operation has ended: it is finished."


def test_a_bug_ends_the_operation_and_says_so(world: World, acme: Caller) -> None:
    acme.create("a")
    made = acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    world.database.run("update operations set kind = 'jobs.dance'")
    work(world)
    world.database.run("update operations set kind = 'jobs.pause'")
    ended = acme.get(f"/v1/operations/{made['id']}")
    assert ended["state"] == "failed"
    assert ended["errors"] == [{"job": None, "code": "internal", "detail": "ValueError"}]


def test_the_same_request_again_is_one_operation(acme: Caller) -> None:
    document = {"filter": {}}
    first = acme.post("/v1/jobs/pause", document, expect=202, idempotency_key="k")
    assert acme.post("/v1/jobs/pause", document, expect=202, idempotency_key="k") == first
    assert len(acme.get("/v1/operations")["items"]) == 1


def test_an_operation_of_a_suspended_tenant_rests(world: World, acme: Caller) -> None:
    acme.create("a", schedule={"every": "1h"})
    acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    world.database.run("update tenants set state = 'suspended' where name = 'acme'")
    assert work(world) == 0
    world.database.run("update tenants set state = 'active' where name = 'acme'")
    assert work(world) == 1
    assert states(acme) == {"a": "paused"}
