"""/v1/launches/{id}/log, progress and /v1/system/workers, through real rows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import Caller, World, unused_id

from tickrail.engine.presence import ABSENT_AFTER
from tickrail.store.workers import count_workers

pytestmark = pytest.mark.integration


def launched(world: World, state: str = "running", **columns: object) -> str:
    """A launch of acme in a state; columns are SQL."""
    world.acme.call("PUT", "/v1/jobs/name:a", {**WEBHOOK, "name": "a"})
    made = world.acme.post("/v1/jobs/name:a/trigger", {"overlap": "allow"}, expect=201)["id"]
    phase = {"due": 1, "running": 2}.get(state, 3)
    sets = "".join(f", {name} = {value}" for name, value in columns.items())
    world.database.run(
        f"update launches set state = %s, phase = %s{sets} where id = %s", state, phase, made
    )
    return str(made)


WEBHOOK = {"target": {"webhook": {"url": "https://example.org/"}}, "schedule": None}


def printed(world: World, launch: str, body: str, attempt: int = 1, **columns: object) -> None:
    values = {"size": len(body.encode()), "ended": "false", "updated_at": "now()", **columns}
    world.database.run(
        f"insert into launch_logs (launch_id, scheduled_at, tenant_id, attempt, body,"
        f" {', '.join(values)}) select id, scheduled_at, tenant_id, %s, %s,"
        f" {', '.join(map(str, values.values()))} from launches where id = %s",
        attempt, body, launch,
    )  # fmt: skip


def log(world: World, launch: str, **params: Any) -> Any:
    return world.acme.get(f"/v1/launches/{launch}/log", **params)


def test_a_log_while_it_runs_and_after(world: World) -> None:
    launch = launched(world)
    empty = {"attempt": 1, "body": "", "size": 0, "truncated": False, "updated_at": None}
    assert log(world, launch) == {**empty, "live": True}
    printed(world, launch, "line 1\n")
    found = log(world, launch)
    assert found.pop("updated_at") is not None
    assert found == {
        "attempt": 1, "body": "line 1\n", "size": 7, "truncated": False, "live": True,
    }  # fmt: skip
    world.database.run("update launch_logs set ended = true, size = 100000")
    world.database.run("update launches set state = 'succeeded', phase = 3, finished_at = now()")
    found = log(world, launch)
    assert (found["live"], found["truncated"], found["size"]) == (False, True, 100000)


def test_the_last_words_may_come_a_moment_after_the_end(world: World) -> None:
    launch = launched(world, "succeeded", finished_at="now()")
    assert log(world, launch)["live"] is True
    world.database.run("update launches set finished_at = now() - interval '5 seconds'")
    assert log(world, launch)["live"] is False


def test_each_attempt_has_its_own(world: World) -> None:
    launch = launched(world, "running", attempt=3)
    printed(world, launch, "first", 1, ended="true")
    printed(world, launch, "second", 2, updated_at="now() - interval '1 hour'")
    printed(world, launch, "third", 3)
    assert log(world, launch)["body"] == "third"
    assert [log(world, launch, attempt=n)["body"] for n in (1, 2, 3)] == [
        "first", "second", "third",
    ]  # fmt: skip
    # The second one's worker was killed: it never said that it had ended.
    assert [log(world, launch, attempt=n)["live"] for n in (1, 2, 3)] == [False, False, True]
    world.database.run("update launches set state = 'due', phase = 1, attempt = 4")
    assert log(world, launch)["attempt"] == 3
    answer = world.acme.get(f"/v1/launches/{launch}/log", expect=404, attempt=4)
    assert answer["detail"] == "The launch has no attempt 4; the last one is 3."


def test_before_the_first_attempt(world: World) -> None:
    launch = launched(world, "due")
    found = log(world, launch)
    assert (found["attempt"], found["body"], found["live"]) == (0, "", False)
    answer = world.acme.get(f"/v1/launches/{launch}/log", expect=404, attempt=1)
    assert answer["detail"] == "The launch has had no attempt yet."


def test_a_log_is_its_tenant_s(world: World, beta: Caller) -> None:
    launch = launched(world)
    printed(world, launch, "private")
    beta.get(f"/v1/launches/{launch}/log", expect=404)
    world.acme.get(f"/v1/launches/{unused_id()}/log", expect=404)
    answer = world.acme.get(f"/v1/launches/{launch}/log", expect=422, attempt=0)
    assert answer["errors"][0]["pointer"] == "?attempt"


def test_progress_is_in_the_launch(world: World) -> None:
    launch = launched(world)
    assert world.acme.get(f"/v1/launches/{launch}")["progress"] is None
    world.database.run("""update launches set progress = '{"done": 3, "of": 7}'""")
    assert world.acme.get(f"/v1/launches/{launch}")["progress"] == {"done": 3, "of": 7}
    assert world.acme.get("/v1/launches")["items"][0]["progress"] == {"done": 3, "of": 7}
    assert world.acme.get("/v1/jobs/name:a")["last_launch"]["progress"] == {"done": 3, "of": 7}


def test_workers_are_the_operators_to_see(world: World) -> None:
    assert world.operator.get("/v1/system/workers") == {"items": [], "next_cursor": None}
    insert = (
        "insert into workers (id, name, queues, kinds, tasks, version, concurrency, running,"
        " draining, seen_at) values (%s, %s, '{default}', '{webhook,task}', '{close}', '1.2', 8,"
        " 2, %s, now() - %s::interval)"
    )
    for row in (
        ("b-1", "b", True, "1 second"), ("a-1", "a", False, "4 seconds"),
        ("c-1", "c", False, "30 seconds"), ("d-1", "d", False, "70 seconds"),
    ):  # fmt: skip
        world.database.run(insert, *row)
    items = world.operator.get("/v1/system/workers")["items"]
    assert [(w["name"], w["state"]) for w in items] == [
        ("a", "active"), ("b", "draining"), ("c", "absent"),
    ]  # fmt: skip
    first = items[0]
    assert first.pop("started_at").endswith("Z")
    assert first.pop("seen_at").endswith("Z")
    assert first == {
        "id": "a-1", "name": "a", "state": "active", "queues": ["default"],
        "kinds": ["webhook", "task"], "tasks": ["close"], "version": "1.2", "concurrency": 8,
        "running": 2, "draining": False,
    }  # fmt: skip
    world.acme.get("/v1/system/workers", expect=403)
    world.database.run("insert into queues (name, kinds) values ('mail', '{webhook}')")
    with world.app.state.parts.database.installation() as tx:
        assert count_workers(tx, ABSENT_AFTER) == {"default": 1, "mail": 0}
