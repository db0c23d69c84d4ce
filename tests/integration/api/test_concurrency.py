"""Requests at the same moment, the same request twice, and Idempotency-Key."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
import pytest
from tests.support.api import Caller, World, webhook
from tests.support.until import until

pytestmark = pytest.mark.integration
T = TypeVar("T")
KEY = {"Idempotency-Key": "k-1"}


def at_once(n: int, call: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(call, range(n)))


def test_two_creates_of_one_name_at_once(world: World, acme: Caller) -> None:
    answers = at_once(8, lambda _: acme.call("POST", "/v1/jobs", webhook("a")).status_code)
    assert sorted(answers) == [201] + [409] * 7
    assert world.database.rows("select count(*) from jobs") == [(1,)]


def test_two_puts_of_one_name_at_once_are_one_job(world: World, acme: Caller) -> None:
    def put(n: int) -> int:
        return acme.call("PUT", "/v1/jobs/name:a", webhook("a", description=str(n))).status_code

    answers = at_once(8, put)
    assert sorted(answers) == [200] * 7 + [201]
    [(jobs, version)] = world.database.rows("select count(*), max(version) from jobs")
    assert jobs == 1
    assert world.database.rows("select count(*) from job_versions") == [(version,)]


def test_fifty_equal_requests_with_one_key_make_one_job(world: World, acme: Caller) -> None:
    """Each gets the one answer, or hears that it is still running."""

    def create(_: int) -> tuple[int, str, str | None]:
        made = acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY)
        if made.status_code == 409:
            assert made.json()["code"] == "in_progress"
            assert made.headers["retry-after"] == "1"
            return 409, "", None
        return made.status_code, made.json()["id"], made.headers.get("idempotent-replay")

    answers = at_once(50, create)
    assert {status for status, _, _ in answers} <= {201, 409}
    made = [answer for answer in answers if answer[0] == 201]
    assert len({job for _, job, _ in made}) == 1
    assert [replayed for _, _, replayed in made].count(None) == 1
    assert world.database.rows("select count(*) from jobs") == [(1,)]
    assert world.database.rows("select count(*) from job_versions") == [(1,)]


def test_a_replay_is_the_stored_answer(acme: Caller) -> None:
    first = acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=201)
    acme.patch("/v1/jobs/name:a", {"description": "changed since"})
    again = acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=201)
    assert again.content == first.content
    assert again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    for name in ("etag", "location"):
        assert again.headers[name] == first.headers[name]


def test_a_replayed_trigger_is_one_launch(world: World, acme: Caller) -> None:
    acme.create("a", overlap="allow")
    ids = {acme.call("POST", "/v1/jobs/name:a/trigger", headers=KEY).json()["id"] for _ in "123"}
    assert len(ids) == 1
    assert world.database.rows("select count(*) from launches") == [(1,)]


def test_a_key_is_for_one_request_of_one_tenant(acme: Caller, beta: Caller) -> None:
    acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=201)
    other_body = acme.call("POST", "/v1/jobs", webhook("b"), headers=KEY, expect=422)
    other_path = acme.call("POST", "/v1/jobs/name:a/pause", headers=KEY, expect=422)
    for answer in (other_body, other_path):
        assert answer.json()["code"] == "idempotency_mismatch"
    assert (
        beta.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=201).json()["name"] == "a"
    )


def test_a_refused_request_leaves_its_key_free(world: World, acme: Caller) -> None:
    acme.call("POST", "/v1/jobs", webhook("a", queue="nope"), headers=KEY, expect=422)
    acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=201)
    assert world.database.rows("select count(*) from idempotency_keys") == [(1,)]


def test_a_key_is_forgotten_after_a_day(world: World, acme: Caller) -> None:
    acme.create("a", overlap="allow")
    path = "/v1/jobs/name:a/trigger"
    first = acme.call("POST", path, headers=KEY, expect=201).json()
    world.database.run("update idempotency_keys set created_at = now() - interval '25 hours'")
    second = acme.call("POST", path, headers=KEY, expect=201)
    assert second.json()["id"] != first["id"]
    assert "idempotent-replay" not in second.headers
    third = acme.call("POST", path, headers=KEY, expect=201)
    assert third.json() == second.json()


def test_while_a_request_runs_its_key_is_held_and_a_crash_frees_it(
    world: World, acme: Caller
) -> None:
    name = f"{world.tenant_id('acme')}:{KEY['Idempotency-Key']}"
    other = psycopg.connect(world.database.api_url)
    other.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
    running = acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=409)
    assert running.json()["code"] == "in_progress"
    assert running.headers["retry-after"] == "1"
    [(pid,)] = other.execute("select pg_backend_pid()").fetchall()
    world.database.run("select pg_terminate_backend(%s)", pid)
    acme.call("POST", "/v1/jobs", webhook("a"), headers=KEY, expect=201)
    other.close()


@pytest.mark.parametrize("value", ["", "a b", "x" * 256, "ä"])
def test_a_key_that_cannot_be_one_is_refused(acme: Caller, value: str) -> None:
    header: Any = {"Idempotency-Key": value.encode("latin-1")}
    refused = acme.call("POST", "/v1/jobs", webhook("a"), headers=header, expect=400)
    assert "Idempotency-Key" in refused.json()["detail"]


def test_deletes_at_once_do_not_deadlock(world: World, acme: Caller) -> None:
    for name in "abc":
        acme.create(name, overlap="allow")
        for _ in range(3):
            acme.post(f"/v1/jobs/name:{name}/trigger", expect=201)
    answers = at_once(9, lambda n: acme.call("DELETE", f"/v1/jobs/name:{'abc'[n % 3]}").status_code)
    assert answers == [204] * 9
    assert world.database.rows("select distinct state from launches") == [("cancelled",)]


def test_triggers_at_once_obey_the_overlap_policy(world: World, acme: Caller) -> None:
    acme.create("a", overlap="buffer_one")
    answers = at_once(8, lambda _: acme.call("POST", "/v1/jobs/name:a/trigger").status_code)
    assert sorted(answers) == [201, 201] + [409] * 6
    states = world.database.rows("select state from launches order by state")
    assert states == [("due",), ("held",)]


def test_the_database_away_is_said_and_over_when_it_is_back(world: World, acme: Caller) -> None:
    acme.create("a")
    name = world.database.name
    limit = f"alter database {name} connection limit"
    world.database.run(f"{limit} 0")
    world.database.run(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = %s and usename = 'tickrail_api'",
        name,
    )
    away = acme.call("GET", "/v1/jobs/name:a", expect=503)
    assert (away.json()["code"], away.headers["retry-after"]) == ("unavailable", "1")
    ready = acme.call("GET", "/readyz", expect=503).json()
    assert list(ready["problems"]) == ["postgresql"]
    acme.call("GET", "/healthz", expect=200)
    world.database.run(f"{limit} -1")
    acme.get("/v1/jobs/name:a")


def test_a_session_that_is_killed_costs_no_answer(world: World, acme: Caller) -> None:
    """The pool tries each connection before it lends it."""
    acme.create("a")
    world.database.run(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = %s and usename = 'tickrail_api'",
        world.database.name,
    )
    acme.get("/v1/jobs/name:a")


def test_what_the_audit_log_calls_before_is_what_the_change_replaced(
    world: World, acme: Caller
) -> None:
    """Somebody else's change commits while this one waits for the row."""
    acme.create("a")
    launch = acme.post("/v1/jobs/name:a/trigger", expect=201)["id"]
    acme.put("/v1/secrets/s", {"value": "one"}, expect=201)
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    with world.database.admin() as conn, ThreadPoolExecutor(2) as pool:
        with conn.transaction():
            conn.execute("update launches set state = 'held', phase = 0 where id = %s", [launch])
            conn.execute("update secrets set updated_at = '2001-01-01T00:00Z'")
            changes = [
                pool.submit(acme.post, f"/v1/launches/{launch}/cancel", expect=202),
                pool.submit(acme.put, "/v1/secrets/s", {"value": "two"}, expect=200),
            ]
            until(lambda: world.database.rows(waiting) == [(2,)])
        for change in changes:
            change.result(60)
    told = world.database.rows(
        "select action, coalesce(before ->> 'state', before ->> 'updated_at') from audit_log"
        " where action in ('launch.cancel', 'secret.change') order by action"
    )
    assert told == [("launch.cancel", "held"), ("secret.change", "2001-01-01T00:00:00Z")]
