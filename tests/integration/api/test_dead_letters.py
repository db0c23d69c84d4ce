"""Dead letters over HTTP: list, inspect, redrive of one, scopes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.api import Caller, World, unused_id
from tests.support.dead_api import dead_launch, die

pytestmark = pytest.mark.integration


def listed(caller: Caller, **params: Any) -> list[str]:
    return [x["id"] for x in caller.every("/v1/dead-letters", **params)]


def test_dead_and_abandoned_launches_are_listed_the_last_to_die_first(
    world: World, acme: Caller, beta: Caller
) -> None:
    ids = [dead_launch(world, acme, "a", ago=10.0 * n)["id"] for n in range(1, 6)]
    theirs = dead_launch(world, beta, "a", ago=5)["id"]
    open_one = acme.post("/v1/jobs/name:a/trigger", expect=201)["id"]
    assert listed(acme) == ids
    assert listed(acme, limit=2) == ids
    assert listed(acme, limit=2, sort="died_at") == ids[::-1]
    assert listed(beta) == [theirs]
    first = acme.get("/v1/dead-letters", limit=1)["items"][0]
    assert first["kind"] == "launch"
    assert (first["reason"], first["state"]) == ("attempts_exhausted", "dead")
    assert first["error"] == "http_500: it said 500"
    assert (first["attempt"], first["redrive_count"], first["published"]) == (3, 0, True)
    assert first["job"]["name"] == "a"
    acme.get(f"/v1/dead-letters/{open_one}", expect=404)
    acme.get("/v1/dead-letters", cursor="x", expect=422)


def test_filters(world: World, acme: Caller) -> None:
    named = {
        "exhausted": dead_launch(world, acme, "a", ago=50, job={"tags": {"team": "x"}}),
        "final": dead_launch(world, acme, "b", ago=40, outcome="http_404", retryable=False),
        "uncertain": dead_launch(world, acme, "b", ago=30, state="abandoned", outcome="timed_out"),
        "lost": dead_launch(world, acme, "a", ago=20, outcome="worker_lost"),
        "egress": dead_launch(world, acme, "a", ago=10, outcome="refused_egress", retryable=False),
        "large": dead_launch(world, acme, "a", ago=5, outcome="too_large"),
    }
    of = {launch["id"]: name for name, launch in named.items()}
    at = {x["id"]: x["died_at"] for x in acme.every("/v1/dead-letters")}

    def names(**params: Any) -> set[str]:
        return {of[i] for i in listed(acme, **params)}

    assert names() == set(named)
    assert names(job="name:b") == {"final", "uncertain"}
    assert names(job=named["lost"]["job"]["id"]) == {"exhausted", "lost", "egress", "large"}
    assert names(tag="team:x") == {"exhausted", "lost", "egress", "large"}
    assert names(state="abandoned") == {"uncertain"}
    assert names(queue="default") == set(named)
    assert names(queue="other") == set()
    shown = {"attempts_exhausted": "exhausted", "not_retryable": "final", "uncertain": "uncertain",
             "worker_lost": "lost", "rejected": "egress", "too_large": "large"}  # fmt: skip
    for reason, name in shown.items():
        assert names(reason=reason) == {name}
        assert acme.get(f"/v1/dead-letters/{named[name]['id']}")["reason"] == reason
    assert names(reason=["rejected", "too_large"]) == {"egress", "large"}
    assert names(**{"from": at[named["lost"]["id"]]}) == {"lost", "egress", "large"}
    assert names(to=at[named["lost"]["id"]]) == {"exhausted", "final", "uncertain"}
    acme.get("/v1/dead-letters", job="name:none", expect=404)
    acme.get("/v1/dead-letters", state="cancelled", expect=422)
    acme.get("/v1/dead-letters", queue="No Queue", expect=422)


def test_inspect_shows_attempts_last_response_target_and_payload(
    world: World, acme: Caller
) -> None:
    target = {"webhook": {"url": "http://127.0.0.1:9099/hook", "headers": {"X-Team": "billing"}}}
    acme.create("a", target=target, payload={"of": "job"}, overlap="allow")
    plainly = acme.post("/v1/jobs/name:a/trigger", expect=201)["id"]
    own = acme.post("/v1/jobs/name:a/trigger", {"payload": None}, expect=201)["id"]
    die(world, plainly, body="sorry")
    die(world, own, outcome="timed_out")
    # A later edit does not change what was sent.
    acme.patch("/v1/jobs/name:a", {"payload": {"of": "later"}})
    found = acme.get(f"/v1/dead-letters/{plainly}")
    assert found["launch"] == acme.get(f"/v1/launches/{plainly}")
    assert found["last_response"] == {
        "outcome": "http_500", "code": 500, "message": "it said 500", "body": "sorry",
    }  # fmt: skip
    assert [(a["attempt"], a["outcome"], a["body"]) for a in found["attempts"]] == [
        (3, "http_500", "sorry")
    ]
    assert found["target"]["webhook"]["headers"] == {"X-Team": "billing"}
    assert (found["payload"], found["payload_own"]) == ({"of": "job"}, False)
    found = acme.get(f"/v1/dead-letters/{own}")
    assert (found["payload"], found["payload_own"]) == (None, True)


def test_a_redriven_launch_begins_another_life(world: World, acme: Caller) -> None:
    launch = dead_launch(world, acme, "a", attempt=3)["id"]
    world.database.run("update launches set dlq_owed = true, publications = 4, claim = 7")
    path = f"/v1/launches/{launch}/redrive"
    made = acme.post(path, {"payload": {"n": 2}, "expected_redrive_count": 0}, expect=202)
    assert made["id"] == launch
    assert (made["state"], made["attempt"], made["failures"], made["redrive_count"]) == (
        "due", 4, 0, 1,
    )  # fmt: skip
    assert made["finished_at"] is None
    assert listed(acme) == []
    attempts = acme.get(f"/v1/launches/{launch}/attempts")["items"]
    assert [a["attempt"] for a in attempts] == [3], "the life before stays to be seen"
    rows = world.database.rows("select payload, dlq_owed, publications from launches")
    assert rows == [({"n": 2}, False, 0)]
    said = acme.post(path, expect=409)
    assert "only one that is dead or abandoned" in said["detail"]
    die(world, launch, state="abandoned", attempt=6)
    assert "not 0" in acme.post(path, {"expected_redrive_count": 0}, expect=409)["detail"]
    again = acme.post(path, {"expected_redrive_count": 1}, expect=202)
    assert (again["attempt"], again["redrive_count"]) == (7, 2)
    assert world.database.rows("select payload from launches") == [({"n": 2},)]
    audit = world.database.rows(
        "select before, after from audit_log where action = 'launch.redrive' order by id"
    )
    assert audit[0] == (
        {"state": "dead", "attempt": 3, "failures": 3, "redrive_count": 0},
        {"state": "due", "attempt": 4, "redrive_count": 1, "payload_edited": True},
    )
    assert len(audit) == 2


def test_of_two_who_redrive_at_once_one_is_refused(world: World, acme: Caller) -> None:
    launches = [dead_launch(world, acme, "a")["id"] for _ in range(8)]

    def redrive(launch: str) -> int:
        return acme.call("POST", f"/v1/launches/{launch}/redrive").status_code

    with ThreadPoolExecutor(8) as pool:
        for launch in launches:
            assert sorted(pool.map(redrive, [launch, launch])) == [202, 409]
    assert world.database.rows("select distinct redrive_count, attempt from launches") == [(1, 4)]


def test_a_deleted_job_and_the_limit_refuse_and_the_letter_stays(
    world: World, acme: Caller
) -> None:
    launch = dead_launch(world, acme, "a")["id"]
    path = f"/v1/launches/{launch}/redrive"
    world.database.run("update launches set redrive_count = 10")
    assert "which is the limit" in acme.post(path, expect=409)["detail"]
    world.database.run("update launches set redrive_count = 9")
    acme.delete("/v1/jobs/name:a")
    assert "job is deleted" in acme.post(path, expect=409)["detail"]
    assert listed(acme) == [launch]
    acme.post(f"/v1/launches/{unused_id()}/redrive", expect=404)


def test_a_redriven_launch_is_held_while_overlap_forbids_it(world: World, acme: Caller) -> None:
    for overlap in ("skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other"):
        acme.create(overlap, overlap=overlap.replace("-", "_"))
        first = acme.post(f"/v1/jobs/name:{overlap}/trigger", expect=201)["id"]
        die(world, first)
        second = acme.post(f"/v1/jobs/name:{overlap}/trigger", expect=201)["id"]
        made = acme.post(f"/v1/launches/{first}/redrive", expect=202)
        assert (made["state"], made["attempt"]) == ("held", 4)
        there = acme.get(f"/v1/launches/{second}")
        assert (there["state"], there["cancel_requested"]) == ("due", False)


def test_what_a_redrive_refuses(world: World, acme: Caller) -> None:
    launch = dead_launch(world, acme, "a")["id"]
    refused: list[tuple[Any, str]] = [
        ([], ""),
        ({"expected_redrive_count": -1}, "/expected_redrive_count"),
        ({"expected_redrive_count": "0"}, "/expected_redrive_count"),
        ({"paylod": 1}, "/paylod"),
        ({"payload": "x" * 300_000}, "/payload"),
        ({"payload": "\x00"}, "/payload"),
    ]
    for document, pointer in refused:
        said = acme.post(f"/v1/launches/{launch}/redrive", document, expect=422)
        assert pointer in [e["pointer"] for e in said["errors"]]
    assert listed(acme) == [launch]


def test_a_replayed_redrive_is_one_life(world: World, acme: Caller) -> None:
    launch = dead_launch(world, acme, "a")["id"]
    path = f"/v1/launches/{launch}/redrive"
    one, two = (acme.post(path, expect=202, Idempotency_Key="k") for _ in range(2))
    assert one == two
    assert world.database.rows("select redrive_count from launches") == [(1,)]


def test_scopes(world: World, acme: Caller) -> None:
    launch = dead_launch(world, acme, "a")["id"]
    reads, runs, writes = (
        world.caller(world.key("acme", scope).token) for scope in ("read", "run", "write")
    )
    assert listed(reads) == [launch]
    runs.get("/v1/dead-letters", expect=403)
    reads.post(f"/v1/launches/{launch}/redrive", expect=403)
    reads.post("/v1/dead-letters/redrive", {"filter": {}}, expect=403)
    runs.post("/v1/dead-letters/purge", {"filter": {}}, expect=403)
    made = runs.post("/v1/dead-letters/redrive", {"filter": {}}, expect=202)
    runs.post(f"/v1/operations/{made['id']}/cancel", expect=202)
    made = writes.post("/v1/dead-letters/purge", {"filter": {}}, expect=202)
    runs.post(f"/v1/operations/{made['id']}/cancel", expect=403)
    reads.post(f"/v1/operations/{made['id']}/cancel", expect=403)
    writes.post(f"/v1/operations/{made['id']}/cancel", expect=202)
    assert runs.post(f"/v1/launches/{launch}/redrive", expect=202)["redrive_count"] == 1
