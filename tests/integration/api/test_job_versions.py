"""What a job was, and how to have it back: versions, restore, undelete."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.api import World, unused_id, webhook

pytestmark = pytest.mark.integration


def test_every_saved_definition_is_listed_and_read(world: World) -> None:
    job = world.acme.create("a", description="1")
    path = f"/v1/jobs/{job['id']}"
    for n in (2, 3):
        world.acme.patch(path, {"description": str(n)})
    world.acme.patch(path, {"description": "3"})
    found = world.acme.every(f"{path}/versions", limit=2)
    assert [v["version"] for v in found] == [3, 2, 1]
    assert [v["definition"]["description"] for v in found] == ["3", "2", "1"]
    assert {v["created_by"] for v in found} == {f"key:{world.keys['acme'].key_id}"}
    for version in found:
        assert world.acme.get(f"{path}/versions/{version['version']}") == version
        assert world.acme.get(f"/v1/jobs/name:a/versions/{version['version']}") == version
    now = world.acme.get(path)
    assert found[0]["definition"] == {name: now[name] for name in found[0]["definition"]}
    for wrong in ("4", "0", "-1", "x", "1" * 40, "99999999999", "²"):
        world.acme.get(f"{path}/versions/{wrong}", expect=404)


def test_a_restore_makes_a_new_version_of_an_old_definition(world: World) -> None:
    hourly = {"every": "1h", "anchor": "2026-01-01T00:00:00Z"}
    job = world.acme.create("a", schedule=hourly, tags={"team": "x"})
    path = f"/v1/jobs/{job['id']}"
    changed = world.acme.patch(path, {"schedule": {"every": "2h"}, "tags": {"team": "y"}})
    restored = world.acme.post(f"{path}/versions/1/restore", expect=200)
    assert restored["version"] == 3
    assert restored["schedule"] == job["schedule"] != changed["schedule"]
    assert [j["name"] for j in world.acme.get("/v1/jobs", tag="team:x")["items"]] == ["a"]
    assert world.acme.get("/v1/jobs", tag="team:y")["items"] == []
    # What it has already changes nothing.
    again = world.acme.post(f"{path}/versions/1/restore", expect=200)
    assert again["version"] == 3
    world.acme.post(f"{path}/versions/9/restore", expect=404)
    rows = world.database.rows(
        "select before ->> 'tags', after ->> 'tags' from audit_log where action = 'job.restore'"
    )
    assert rows == [('{"team": "y"}', '{"team": "x"}')]


def test_a_restore_honours_if_match_and_what_is_there_by_now(world: World) -> None:
    world.acme.put("/v1/secrets/token", {"value": "hunter2"}, expect=201)
    signed = webhook("a")
    signed["target"]["webhook"]["headers"] = {"Authorization": {"secret": "token"}}
    job = world.acme.post("/v1/jobs", signed, expect=201)
    path = f"/v1/jobs/{job['id']}"
    world.acme.put(path, webhook("b"))
    restore = f"{path}/versions/1/restore"
    stale = world.acme.call("POST", restore, headers={"If-Match": '"1"'}, expect=412)
    assert stale.json()["code"] == "precondition_failed"
    world.acme.create("a")
    assert world.acme.post(restore, expect=409)["code"] == "name_taken"
    world.acme.delete("/v1/jobs/name:a")
    world.acme.delete("/v1/secrets/token")
    refused = world.acme.post(restore, expect=422)
    assert refused["errors"][0]["pointer"] == "/target/webhook/headers/Authorization/secret"
    world.acme.put("/v1/secrets/token", {"value": "hunter3"}, expect=201)
    back = world.acme.call("POST", restore, headers={"If-Match": '"2"'}, expect=200)
    assert (back.json()["name"], back.headers["ETag"]) == ("a", '"3"')
    world.acme.delete(path)
    world.acme.post(restore, expect=409)


def test_a_deleted_job_comes_back_and_goes_on_from_now(world: World) -> None:
    job = world.acme.create(
        "a", schedule={"every": "1m", "anchor": "2026-01-01T00:00:00Z"}, tags={"team": "x"}
    )
    path = f"/v1/jobs/{job['id']}"
    world.acme.delete(path)
    # Three hours ago, and since then nothing was launched.
    world.database.run(
        "update jobs set deleted_at = now() - interval '3 hours',"
        " created_at = now() - interval '4 hours', last_slot_at = now() - interval '3 hours'"
    )
    back = world.acme.post(f"{path}/undelete", expect=200)
    assert (back["version"], back["state"], back["name"]) == (2, "active", "a")
    assert [v["version"] for v in world.acme.every(f"{path}/versions")] == [2, 1]
    [(now,)] = world.database.rows("select now()")
    due = datetime.fromisoformat(back["next_run_at"])
    assert isinstance(now, datetime)
    assert now - timedelta(seconds=30) < due <= now + timedelta(seconds=61)
    passed = [s for s in world.acme.every(f"{path}/slots", limit=500) if s["state"] == "skipped"]
    assert {s["reason"] for s in passed} == {"skipped_by_hand"}
    assert sum(s["count"] for s in passed) in (180, 181)
    assert world.acme.get("/v1/jobs/name:a") == {**back, "lint": world.acme.get(path)["lint"]}
    assert [j["id"] for j in world.acme.get("/v1/jobs", tag="team:x")["items"]] == [job["id"]]
    assert world.acme.post(f"{path}/undelete", expect=409)["code"] == "conflict"


def test_a_paused_job_comes_back_paused(world: World) -> None:
    job = world.acme.create("a", schedule={"every": "1m"})
    path = f"/v1/jobs/{job['id']}"
    for until, state in ((None, "paused"), ("2099-01-01T00:00:00Z", "paused")):
        note = {"reason": "why"} | ({} if until is None else {"until": until})
        world.acme.post(f"{path}/pause", note, expect=200)
        world.acme.delete(path)
        back = world.acme.post("/v1/jobs/name:a/undelete", expect=200)
        assert (back["state"], back["paused"]["reason"]) == (state, "why")
        assert back["paused"]["until"] == until
        [(resume_at,)] = world.database.rows("select resume_at is not null from jobs")
        assert resume_at == (until is not None)
    world.acme.delete(path)
    world.database.run('update jobs set paused = paused || \'{"until": "2026-01-01T00:00:00Z"}\'')
    assert world.acme.post(f"{path}/undelete", expect=200)["state"] == "active"


def test_what_stands_in_the_way_of_an_undelete(world: World) -> None:
    world.acme.put("/v1/calendars/holidays", {"weekdays": ["sun"]}, expect=201)
    job = world.acme.create("a", schedule={"every": "1h"}, calendars={"exclude": ["holidays"]})
    path = f"/v1/jobs/{job['id']}"
    world.acme.post(f"{path}/undelete", expect=409)
    world.acme.delete(path)
    stale = world.acme.call("POST", f"{path}/undelete", headers={"If-Match": '"7"'}, expect=412)
    assert stale.json()["code"] == "precondition_failed"
    other = world.acme.create("a")
    assert world.acme.post(f"{path}/undelete", expect=409)["code"] == "name_taken"
    assert world.acme.post("/v1/jobs/name:a/undelete", expect=409)["code"] == "conflict"
    world.acme.delete(f"/v1/jobs/{other['id']}")
    world.acme.delete("/v1/calendars/holidays")
    refused = world.acme.post(f"{path}/undelete", expect=422)
    assert refused["errors"][0]["pointer"] == "/calendars/exclude/0"
    world.acme.put("/v1/calendars/holidays", {"weekdays": ["sun"]}, expect=201)
    # A name means the one that was deleted last.
    assert world.acme.post("/v1/jobs/name:a/undelete", expect=200)["id"] == other["id"]
    world.acme.delete(f"/v1/jobs/{other['id']}")
    world.database.run("update jobs set deleted_at = now() - interval '30 days 1 second'")
    late = world.acme.post(f"{path}/undelete", expect=409)
    assert late["detail"] == "The job was deleted more than 30 days ago."
    world.acme.post(f"/v1/jobs/{unused_id()}/undelete", expect=404)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"schedule": None}, "active"),
        ({"schedule": {"at": "2020-11-01T03:04:05Z"}}, "finished"),
        ({"schedule": {"every": "1h"}, "max_launches": 1}, "finished"),
        ({"schedule": {"every": "1h", "measured_from": "completion"}}, "active"),
    ],
)
def test_a_job_that_is_over_comes_back_finished(
    world: World, fields: dict[str, Any], state: str
) -> None:
    job = world.acme.create("a", schedule={"every": "1h"})
    path = f"/v1/jobs/{job['id']}"
    if "at" in (fields["schedule"] or {}):
        # Written by an older day: today it would be refused as older than the history.
        world.acme.patch(path, {"schedule": {"at": "2099-01-01T00:00:00Z"}})
        for table, column in (("jobs", "plan"), ("job_versions", "definition")):
            world.database.run(
                f"update {table} set {column} ="
                f" jsonb_set({column}, '{{schedule,at}}', '\"2020-11-01T03:04:05Z\"')"
                " where version = 2"
            )
    else:
        world.acme.patch(path, fields)
    world.acme.delete(path)
    world.database.run("update jobs set launched = 1, last_slot_at = now()")
    assert world.acme.post(f"{path}/undelete", expect=200)["state"] == state
