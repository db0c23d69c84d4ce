"""Jobs over HTTP: create, read, replace, patch, delete, and what each leaves behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.api import URL, Caller, World, webhook

from tickrail.core.sharding import partition_of

pytestmark = pytest.mark.integration
YEARLY = {"cron": "0 2 1 1 *", "time_zone": "Europe/Berlin"}


def pointers(answer: Any) -> list[str]:
    return [e["pointer"] for e in answer["errors"]]


def test_a_new_job_is_answered_with_its_defaults_and_where_to_find_it(acme: Caller) -> None:
    made = acme.call("POST", "/v1/jobs", webhook("a", schedule=YEARLY), expect=201)
    job = made.json()
    assert made.headers["location"] == f"/v1/jobs/{job['id']}"
    assert made.headers["etag"] == '"1"'
    assert UUID(job["id"]).version == 7
    assert job["partition"] == partition_of(UUID(job["id"]), 4)
    assert (job["version"], job["state"], job["paused"]) == (1, "active", None)
    assert job["schedule"] == YEARLY | {"gap": "after", "fold": "first"}
    assert job["next_run_at"].endswith("-01-01T01:00:00Z")
    assert job["target"] == {
        "webhook": {"url": URL, "method": "POST", "headers": {}, "success": "2xx"}
    }
    assert acme.get(f"/v1/jobs/{job['id']}") == job
    assert acme.get("/v1/jobs/name:a") == job


def test_a_job_without_a_schedule_waits_for_a_hand(acme: Caller) -> None:
    job = acme.create("by-hand")
    assert (job["schedule"], job["next_run_at"], job["state"]) == (None, None, "active")


def test_a_name_is_taken_while_its_job_lives(acme: Caller) -> None:
    acme.create("a")
    taken = acme.post("/v1/jobs", webhook("a"), expect=409)
    assert (taken["code"], pointers(taken)) == ("name_taken", ["/name"])
    acme.delete("/v1/jobs/name:a")
    acme.create("a")


def test_a_deleted_job_is_read_by_its_id_only(world: World, acme: Caller) -> None:
    job = acme.create("a", schedule=YEARLY)
    acme.delete("/v1/jobs/name:a")
    acme.delete("/v1/jobs/name:a")
    acme.delete(f"/v1/jobs/{job['id']}")
    gone = acme.get(f"/v1/jobs/{job['id']}")
    assert (gone["state"], gone["next_run_at"]) == ("deleted", None)
    acme.get("/v1/jobs/name:a", expect=404)
    assert acme.get("/v1/jobs")["items"] == []
    assert [j["id"] for j in acme.get("/v1/jobs", state="deleted")["items"]] == [job["id"]]
    acme.put(f"/v1/jobs/{job['id']}", webhook("a"), expect=409)
    acme.post(f"/v1/jobs/{job['id']}/trigger", expect=409)
    acme.post(f"/v1/jobs/{job['id']}/pause", expect=409)
    [(deletions,)] = world.database.rows(
        "select count(*) from audit_log where action = 'job.delete'"
    )
    assert deletions == 1


def test_deleting_cancels_what_does_not_run_and_lets_a_run_finish(
    world: World, acme: Caller
) -> None:
    job = acme.create("a", overlap="allow")
    waiting, running, ended = (
        acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)["id"] for _ in range(3)
    )
    set_state = "update launches set state = %s, phase = %s where id = %s"
    world.database.run(set_state, "running", 2, running)
    world.database.run(set_state, "succeeded", 3, ended)
    acme.delete(f"/v1/jobs/{job['id']}")
    states = [acme.get(f"/v1/launches/{i}")["state"] for i in (waiting, running, ended)]
    assert states == ["cancelled", "running", "succeeded"]


def test_put_by_name_creates_then_replaces(acme: Caller) -> None:
    first = acme.call("PUT", "/v1/jobs/name:a", webhook("a"), expect=201)
    assert first.headers["location"] == f"/v1/jobs/{first.json()['id']}"
    again = acme.put("/v1/jobs/name:a", webhook("a"))
    assert again == first.json()
    changed = acme.call("PUT", "/v1/jobs/name:a", webhook("a", description="new"), expect=200)
    assert changed.headers["etag"] == '"2"'
    assert changed.json()["id"] == first.json()["id"]
    nameless = webhook("a", description="new")
    del nameless["name"]
    assert acme.put("/v1/jobs/name:a", nameless)["version"] == 2


def test_put_takes_back_the_document_that_was_answered(acme: Caller) -> None:
    job = acme.create("a", schedule={"every": "10m"})
    assert acme.put(f"/v1/jobs/{job['id']}", job) == job


def test_put_by_name_refuses_another_name_and_by_id_renames(acme: Caller) -> None:
    job = acme.create("a")
    acme.create("b")
    assert pointers(acme.put("/v1/jobs/name:a", webhook("c"), expect=422)) == ["/name"]
    assert acme.put(f"/v1/jobs/{job['id']}", webhook("c"))["name"] == "c"
    assert acme.put(f"/v1/jobs/{job['id']}", webhook("b"), expect=409)["code"] == "name_taken"
    acme.get("/v1/jobs/name:a", expect=404)


@pytest.mark.parametrize(
    "schedule",
    [
        {"every": "15m"},
        {"calendar": {"every": 3, "unit": "day", "at": "02:00"}},
        {"calendar": {"every": 2, "unit": "week", "on": "mon", "at": "02:00"},
         "time_zone": "Pacific/Kiritimati"},
        {"calendar": {"every": 2, "unit": "day", "at": "23:00"}, "time_zone": "Etc/GMT+12"},
        {"any_of": [{"every": "15m"}, {"every": "1h"}, {"cron": "0 2 * * *"}]},
    ],
    ids=["every", "calendar", "far east", "far west", "any_of"],
)  # fmt: skip
def test_applying_a_schedule_without_an_anchor_again_changes_nothing(
    world: World, acme: Caller, schedule: dict[str, Any]
) -> None:
    acme.create("a", schedule=schedule)
    # Accepted long ago: the default anchor of today is another one.
    for column, table in (("definition", "job_versions"), ("plan", "jobs")):
        moved = (
            rf"regexp_replace({column}::text, '(\"anchor\": \")\d+-\d+-\d+', '\12026-01-05', 'g')"
        )
        world.database.run(f"update {table} set {column} = {moved}::jsonb")
    world.database.run("update job_versions set created_at = '2026-01-05T10:00:00Z'")
    kept = acme.get("/v1/jobs/name:a")
    assert "2026-01-05" in str(kept["schedule"])
    assert acme.put("/v1/jobs/name:a", webhook("a", schedule=schedule)) == kept
    changed = acme.put("/v1/jobs/name:a", webhook("a", schedule=schedule, tags={"x": "y"}))
    assert (changed["version"], changed["schedule"]) == (2, kept["schedule"])
    again = acme.put("/v1/jobs/name:a", webhook("a", schedule=schedule, tags={"x": "y"}))
    assert again["version"] == 2


def test_patch_merges(acme: Caller) -> None:
    job = acme.create("a", schedule=YEARLY, tags={"team": "x", "tier": "1"}, payload={"n": 1})
    patch = {"tags": {"team": None, "new": "y"}, "schedule": {"cron": "5 2 1 1 *"}, "payload": None}
    changed = acme.patch(f"/v1/jobs/{job['id']}", patch)
    assert changed["tags"] == {"tier": "1", "new": "y"}
    assert changed["schedule"]["time_zone"] == "Europe/Berlin"
    assert changed["payload"] is None
    assert changed["next_run_at"].endswith("-01-01T01:05:00Z")
    assert acme.patch(f"/v1/jobs/{job['id']}", {"description": ""})["version"] == 2
    assert pointers(acme.patch(f"/v1/jobs/{job['id']}", {"tagz": {}}, expect=422)) == ["/tagz"]
    acme.patch(f"/v1/jobs/{job['id']}", [1], expect=422)


def test_a_patch_replaces_the_form_of_a_schedule(acme: Caller) -> None:
    place = {"time_zone": "Europe/Berlin", "gap": "skip", "fold": "both"}
    job = acme.create("a", schedule={"cron": "0 2 1 1 *", **place})
    path = f"/v1/jobs/{job['id']}"

    def changed(schedule: dict[str, object]) -> dict[str, object]:
        found: dict[str, object] = acme.patch(path, {"schedule": schedule})["schedule"]
        return {name: found[name] for name in (*place, *schedule) if name in found}

    assert changed({"every": "1d"}) == {"every": "1d"}
    cron = {"cron": "0 3 1 1 *", **place}
    assert changed(cron) == cron
    interval = {"calendar": {"unit": "year", "on": "01-02", "at": "03:00"}}
    assert changed(interval).items() >= place.items()
    assert changed({"cron": "0 4 1 1 *"}) == {"cron": "0 4 1 1 *", **place}
    assert changed({"any_of": [{"cron": "0 5 1 1 *"}]}).keys() == {"any_of"}
    assert changed({"at": "2099-01-01T02:00:00Z"}).keys() == {"at"}
    assert pointers(
        acme.patch(path, {"schedule": {"cron": "0 5 1 1 *", "every": "1d"}}, expect=422)
    ) == ["/schedule"]


def test_versions_are_kept_with_who_wrote_them(world: World, acme: Caller) -> None:
    job = acme.create("a")
    acme.patch(f"/v1/jobs/{job['id']}", {"description": "two"})
    rows = world.database.rows(
        "select version, definition->>'description', created_by from job_versions order by version"
    )
    who = f"key:{world.keys['acme'].key_id}"
    assert rows == [(1, "", who), (2, "two", who)]


def test_preconditions(acme: Caller) -> None:
    job = acme.create("a")
    path = f"/v1/jobs/{job['id']}"
    two = webhook("a", description="two")
    acme.call("PUT", path, two, headers={"If-Match": '"1", "7"'}, expect=200)
    stale = acme.call("PATCH", path, {"description": "x"}, headers={"If-Match": '"1"'}, expect=412)
    assert (stale.json()["code"], pointers(stale.json())) == (
        "precondition_failed",
        ["/description"],
    )
    for verb, where in (("DELETE", path), ("POST", f"{path}/pause"), ("POST", f"{path}/trigger")):
        acme.call(verb, where, headers={"If-Match": '"1"'}, expect=412)
    only_new = {"If-None-Match": "*"}
    acme.call("PUT", "/v1/jobs/name:a", two, headers=only_new, expect=412)
    acme.call("PUT", "/v1/jobs/name:b", webhook("b"), headers=only_new, expect=201)
    acme.call("PUT", "/v1/jobs/name:c", webhook("c"), headers={"If-Match": "*"}, expect=412)
    acme.call("PUT", path, two, headers={"If-Match": "7"}, expect=400)
    acme.call("DELETE", path, headers={"If-Match": '"2"'}, expect=204)


def test_a_one_off_in_the_past_is_due_at_once_and_not_too_old(acme: Caller) -> None:
    now = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - the database's clock is real
    late = (now - timedelta(hours=3)).isoformat().replace("+00:00", "Z")
    job = acme.create("late", schedule={"at": late})
    assert (job["next_run_at"], job["state"]) == (late, "active")
    old = (now - timedelta(days=31)).isoformat()
    refused = acme.post("/v1/jobs", webhook("old", schedule={"at": old}), expect=422)
    assert pointers(refused) == ["/schedule/at"]
    ended = webhook("ended", schedule={"every": "1h"}, ends_at=late)
    assert pointers(acme.post("/v1/jobs", ended, expect=422)) == ["/ends_at"]


def test_a_job_may_start_paused(acme: Caller) -> None:
    job = acme.create("a", schedule=YEARLY, paused=True)
    assert job["state"] == "paused"
    assert job["paused"]["reason"] == "created paused"
    assert job["next_run_at"] is not None
    again = acme.put("/v1/jobs/name:a", webhook("a", schedule=YEARLY, paused=False))
    assert again["state"] == "paused"
    assert acme.post("/v1/jobs/name:a/resume", expect=200)["state"] == "active"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"queue": "nope"}, "/queue"),
        ({"target": {"command": {"argv": ["/bin/true"]}}}, "/queue"),
        ({"target": {"webhook": {"url": "http://10.1.2.3/"}}}, "/target/webhook/url"),
        ({"target": {"webhook": {"url": "http://[::ffff:10.0.0.1]/"}}}, "/target/webhook/url"),
        ({"target": {"webhook": {"url": "http://2130706433:6379/"}}}, "/target/webhook/url"),
        ({"target": {"webhook": {"url": "file:///etc/passwd"}}}, "/target/webhook/url"),
        ({"schedule": {"every": "5m", "measured_from": "end"}}, "/schedule/measured_from"),
        (
            {"schedule": {"any_of": [{"every": "5m", "measured_from": "completion"}]}},
            "/schedule/any_of",
        ),
        ({"calendars": {"exclude": ["x"]}}, "/calendars/exclude/0"),
        ({"calendars": {"include": ["x"]}, "schedule": None}, "/calendars/include/0"),
        ({"calendars": {"exclude": ["X Y"]}}, "/calendars/exclude/0"),
        ({"calendars": {"exclude": "x"}}, "/calendars/exclude"),
        ({"calendars": {"exclude": ["x"], "include": ["x"]}}, "/calendars/include"),
        ({"calendars": {"exclude": ["x"], "on_excluded": "move"}}, "/calendars/on_excluded"),
        ({"calendars": {"exclud": ["x"]}}, "/calendars/exclud"),
        ({"on_failures": {"pause_after": 0}}, "/on_failures/pause_after"),
        ({"on_failures": {"pause_afer": 3}}, "/on_failures/pause_afer"),
        ({"on_failures": {"notify": "webhook:ops"}}, "/on_failures/notify"),
        ({"on_failures": {"notify": ["kafka:x", "mail:ops"]}}, "/on_failures/notify/1"),
        ({"on_failures": {"notify": ["kafka:x"] * 6}}, "/on_failures/notify"),
        ({"on_failures": {"notify": ["webhook:not-there"]}}, "/on_failures/notify/0"),
        ({"on_failures": {"notify": ["kafka:not-allowed"]}}, "/on_failures/notify/0"),
        ({"schedule": {"cron": "99 * * * *"}}, "/schedule/cron"),
        ({"schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berln"}}, "/schedule/time_zone"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ({"paused": "yes"}, "/paused"),
    ],
)
def test_what_is_wrong_is_named_at_create_and_at_change(
    acme: Caller, fields: dict[str, Any], pointer: str
) -> None:
    refused = acme.post("/v1/jobs", webhook("a", **fields), expect=422)
    assert pointers(refused) == [pointer]
    job = acme.create("a")
    changed = acme.put(f"/v1/jobs/{job['id']}", webhook("a") | fields, expect=422)
    assert pointers(changed) == [pointer]
    assert acme.get(f"/v1/jobs/{job['id']}") == job


def test_every_problem_is_named_at_once(acme: Caller) -> None:
    bad = {"name": "A b", "tags": {"!": 1}, "schedule": {"cron": "x"}, "targt": 1}
    found = pointers(acme.post("/v1/jobs", bad, expect=422))
    assert {"/name", "/tags/!", "/schedule/cron", "/targt", "/target"} <= set(found)


def test_changes_are_audited_with_before_and_after(world: World, acme: Caller) -> None:
    job = acme.create("a")
    acme.call(
        "PATCH", f"/v1/jobs/{job['id']}", {"description": "x"},
        headers={"X-Request-Id": "req-1"}, expect=200,
    )  # fmt: skip
    rows = world.database.rows(
        "select action, actor, before->>'description', after->>'description', request_id = 'req-1'"
        " from audit_log where subject = %s order by id",
        f"job:{job['id']}",
    )
    who = f"key:{world.keys['acme'].key_id}"
    assert rows == [("job.create", who, None, "", False), ("job.change", who, "", "x", True)]


def test_a_job_is_made_as_well_by_every_later_statement_of_a_connection(acme: Caller) -> None:
    """From the sixth use on, a statement is prepared; later its plan knows no parameter."""
    for n in range(12):
        job = acme.put(f"/v1/jobs/name:a-{n}", webhook(f"a-{n}"), expect=201)
        acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
        acme.post(f"/v1/jobs/{job['id']}/trigger", expect=409)
        acme.post(f"/v1/jobs/{job['id']}/pause", expect=200)
        acme.patch(f"/v1/jobs/{job['id']}", {"description": "x"})
        acme.get("/v1/jobs", tag="a:b", name_prefix="a", sort="name", limit=1)
        acme.delete(f"/v1/jobs/{job['id']}")
