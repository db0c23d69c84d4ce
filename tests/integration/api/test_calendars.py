"""/v1/calendars on PostgreSQL: put, read, delete, and what a change moves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import Caller, World

pytestmark = pytest.mark.integration

HOLIDAYS = "/v1/calendars/holidays"
NEW_YEAR = {"cron": "0 12 1 1 *"}
ICS = (
    "BEGIN:VCALENDAR\r\nX-WR-CALNAME:Days off\r\nBEGIN:VEVENT\r\nUID:1\r\nSUMMARY:May day\r\n"
    "DTSTART;VALUE=DATE:20260501\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def user(caller: Caller, name: str, schedule: Any = NEW_YEAR, **more: Any) -> Any:
    """A job that leaves out the calendar `holidays`."""
    use = {"calendars": {"exclude": ["holidays"]}} | more
    return caller.create(name, schedule=schedule, **use)


def moved_names(answer: Any) -> list[str]:
    return sorted(item["job"]["name"] for item in answer["moved"]["items"])


def test_a_calendar_is_made_read_replaced_and_deleted(world: World) -> None:
    made = world.acme.call(
        "PUT", HOLIDAYS, {"dates": ["2026-12-24"], "time_zone": "Europe/Berlin"}, expect=201
    )
    assert made.headers["Location"] == HOLIDAYS
    assert made.headers["ETag"] == '"1"'
    document = made.json()
    assert document["moved"] == {"jobs": 0, "items": []}
    read = world.acme.call("GET", HOLIDAYS, expect=200)
    assert read.headers["ETag"] == '"1"'
    assert read.json() == {k: v for k, v in document.items() if k != "moved"}
    assert read.json()["windows"] == []

    # What was answered can be sent again, edited or not.
    again = world.acme.call("PUT", HOLIDAYS, document, expect=200)
    assert again.headers["ETag"] == '"1"'
    assert again.json()["updated_at"] == document["updated_at"]
    changed = world.acme.put(HOLIDAYS, document | {"weekdays": ["sun", "sat", "sun"]})
    assert (changed["version"], changed["weekdays"]) == (2, ["sat", "sun"])
    assert changed["created_at"] == document["created_at"] < changed["updated_at"]

    world.acme.delete(HOLIDAYS)
    world.acme.delete(HOLIDAYS)
    world.acme.get(HOLIDAYS, expect=404)
    assert world.acme.put(HOLIDAYS, {}, expect=201)["version"] == 1


def test_a_change_holds_to_what_its_caller_has_seen(acme: Caller) -> None:
    acme.put(HOLIDAYS, {"weekdays": ["sun"]}, expect=201)
    put = {"weekdays": ["sat"]}
    for headers in ({"If-None-Match": "*"}, {"If-Match": '"2"'}, {"If-Match": '"3", "4"'}):
        refused = acme.call("PUT", HOLIDAYS, put, headers=headers, expect=412)
        assert "version 1" in refused.json()["detail"]
    assert acme.get(HOLIDAYS)["weekdays"] == ["sun"]
    acme.call("PUT", HOLIDAYS, put, headers={"If-Match": '"1"'}, expect=200)
    acme.call("DELETE", HOLIDAYS, headers={"If-Match": '"1"'}, expect=412)
    acme.call("DELETE", HOLIDAYS, headers={"If-Match": '"2"'}, expect=204)
    acme.call("PUT", HOLIDAYS, put, headers={"If-Match": "*"}, expect=412)
    acme.call("PUT", HOLIDAYS, put, headers={"If-Match": "7"}, expect=400)


def test_a_patch_changes_what_it_names(acme: Caller) -> None:
    acme.patch(HOLIDAYS, {"weekdays": ["sat"]}, expect=404)
    acme.patch("/v1/calendars/Holidays", {}, expect=404)
    acme.put(HOLIDAYS, {"weekdays": ["sun"], "description": "Mine"}, expect=201)
    patch = {"description": None, "dates": ["2026-12-24"], "icalendar": ICS}
    dry = acme.call("PATCH", HOLIDAYS, patch, params={"dry_run": "true"}, expect=200)
    assert "ETag" not in dry.headers
    done = acme.patch(HOLIDAYS, patch)
    assert done == dry.json() | {"updated_at": done["updated_at"]}
    assert (done["version"], done["weekdays"], done["dates"]) == (2, ["sun"], ["2026-12-24"])
    assert done["description"] == "Days off"
    assert len(done["events"]) == 1
    assert acme.patch(HOLIDAYS, {"dates": ["2026-12-24"]})["version"] == 2
    acme.call("PATCH", HOLIDAYS, {"dates": []}, headers={"If-Match": '"1"'}, expect=412)
    for wrong, pointer in (([], ""), ({"dats": []}, "/dats"), ({"name": "x"}, "/name")):
        assert acme.patch(HOLIDAYS, wrong, expect=422)["errors"][0]["pointer"] == pointer


def test_a_file_is_put_as_it_is_or_within_a_document(acme: Caller) -> None:
    headers = {"Content-Type": "text/calendar; charset=utf-8"}
    made = acme.call("PUT", HOLIDAYS, raw=ICS.encode(), headers=headers, expect=201).json()
    event = {
        "summary": "May day",
        "start": "2026-05-01",
        "end": "2026-05-02",
        "rrule": "FREQ=YEARLY",
    }
    assert made["events"] == [event]
    assert made["description"] == "Days off"
    own = {"start": "2026-07-01"}
    document = {"icalendar": ICS, "events": [own], "description": "Mine", "weekdays": ["sun"]}
    both = acme.put("/v1/calendars/both", document, expect=201)
    assert [e["start"] for e in both["events"]] == ["2026-07-01", "2026-05-01"]
    assert both["description"] == "Mine"
    assert acme.get("/v1/calendars/both")["events"] == both["events"]


BAD: dict[str, tuple[Any, str, str]] = {
    "no object": ([], "", "an object"),
    "nothing": (None, "", "an object"),
    "an unknown field": ({"date": []}, "/date", "did you mean 'dates'?"),
    "another name": ({"name": "x"}, "/name", "'holidays'"),
    "a wrong day": ({"dates": ["24.12.2026"]}, "/dates/0", "2026-12-24"),
    "a word for dry run": ({"dry_run": "yes"}, "/dry_run", "true or false"),
    "a number for a file": ({"icalendar": 1}, "/icalendar", "the text of an iCalendar file"),
    "a file that is none": ({"icalendar": "x"}, "/icalendar", "BEGIN:VCALENDAR"),
    "a rule of a file": (
        {"events": [{"start": "2026-01-01"}],
         "icalendar": ICS.replace("FREQ=YEARLY", "FREQ=HOURLY")}, "/icalendar", "FREQ=DAILY"),
    "events beside a file that are none": (
        {"events": 1, "icalendar": ICS}, "/events", "an array"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "pointer", "expected"), BAD.values(), ids=BAD.keys())
def test_a_wrong_document_is_refused_with_its_place(
    acme: Caller, document: Any, pointer: str, expected: str
) -> None:
    problem = acme.put(HOLIDAYS, document, expect=422)
    [error] = problem["errors"]
    assert (error["pointer"], expected in error["expected"]) == (pointer, True)
    acme.get(HOLIDAYS, expect=404)


def test_wrong_ways_to_ask_are_refused(acme: Caller) -> None:
    assert acme.put("/v1/calendars/Holidays", {}, expect=422)["errors"][0]["pointer"] == "/name"
    acme.get("/v1/calendars/Holidays", expect=404)
    acme.get("/v1/calendars/%00", expect=404)
    acme.call("PUT", HOLIDAYS, {}, params={"dryrun": "true"}, expect=422)
    acme.call("GET", HOLIDAYS, params={"x": "1"}, expect=422)
    latin = {"Content-Type": "text/calendar"}
    acme.call("PUT", HOLIDAYS, raw=b"\xe9", headers=latin, expect=400)
    acme.call("POST", HOLIDAYS, {}, expect=405)


def test_lists_are_pages_by_name(acme: Caller) -> None:
    for name in ("c", "a", "b", "a-2"):
        acme.put(f"/v1/calendars/{name}", {}, expect=201)
    assert [c["name"] for c in acme.every("/v1/calendars", limit=2)] == ["a", "a-2", "b", "c"]
    assert acme.get("/v1/calendars", limit=4)["next_cursor"] is None
    acme.get("/v1/calendars", cursor="x", expect=422)


def test_writes_need_the_scope_admin(world: World) -> None:
    world.acme.put(HOLIDAYS, {}, expect=201)
    writer = world.caller(world.key("acme", "read", "run", "write").token)
    writer.get(HOLIDAYS)
    for method in ("PUT", "PATCH", "DELETE"):
        writer.call(method, HOLIDAYS, None if method == "DELETE" else {}, expect=403)
    runner = world.caller(world.key("acme", "run").token)
    runner.get("/v1/calendars", expect=403)


def test_calendars_are_each_tenants_own(world: World) -> None:
    theirs = world.acme.put(HOLIDAYS, {"weekdays": ["sun"]}, expect=201)
    job = user(world.acme, "a")
    assert world.beta.get("/v1/calendars")["items"] == []
    foreign = world.beta.call("GET", HOLIDAYS, expect=404).json()
    absent = world.beta.call("GET", "/v1/calendars/absences", expect=404).json()
    assert foreign["detail"].replace("holidays", "NAME") == absent["detail"].replace(
        "absences", "NAME"
    )
    world.beta.call("PUT", HOLIDAYS, {}, headers={"If-Match": "*"}, expect=412)
    world.beta.delete(HOLIDAYS)
    mine = world.beta.put(HOLIDAYS, {"yearly": ["01-01"]}, expect=201)
    assert (mine["version"], mine["moved"]["jobs"]) == (1, 0)
    world.beta.put(HOLIDAYS, {"yearly": ["01-02"]})
    assert world.acme.get(HOLIDAYS)["updated_at"] == theirs["updated_at"]
    assert world.acme.get(f"/v1/jobs/{job['id']}")["next_run_at"] == job["next_run_at"]


def test_a_change_moves_the_jobs_that_use_the_calendar(world: World) -> None:
    world.acme.put(HOLIDAYS, {"weekdays": []}, expect=201)
    one = user(world.acme, "one")
    paused = user(world.acme, "paused")
    world.acme.post(f"/v1/jobs/{paused['id']}/pause", {"until": "2090-01-01T00:00:00Z"}, expect=200)
    user(world.acme, "elsewhere", {"cron": "0 12 2 1 *"})
    stranger = world.acme.create("stranger", schedule=NEW_YEAR)
    gone = user(world.acme, "gone")
    world.acme.delete(f"/v1/jobs/{gone['id']}")
    due = one["next_run_at"]
    later = due.replace(due[:4], str(int(due[:4]) + 1))

    document = {"dates": [due[:10]]}
    dry = world.acme.call("PUT", HOLIDAYS, document, params={"dry_run": "true"}, expect=200)
    assert "ETag" not in dry.headers
    told = world.acme.put(HOLIDAYS, document | {"dry_run": True})
    assert told["moved"] == dry.json()["moved"]
    assert world.acme.get(HOLIDAYS)["version"] == 1
    assert world.acme.get("/v1/jobs/name:one")["next_run_at"] == due

    done = world.acme.put(HOLIDAYS, document)
    assert done["version"] == dry.json()["version"] == 2
    assert done["moved"] == dry.json()["moved"]
    assert done["moved"]["jobs"] == 2
    assert moved_names(done) == ["one", "paused"]
    for item in done["moved"]["items"]:
        assert item["next_run_at"] == {"before": due, "after": later}
        assert (item["added"], item["removed"]) == ([], [due])
    states = {j["name"]: (j["state"], j["next_run_at"]) for j in world.acme.every("/v1/jobs")}
    assert states["one"] == ("active", later)
    assert states["paused"] == ("paused", later)
    assert states["stranger"] == ("active", stranger["next_run_at"])
    kept = world.acme.get("/v1/jobs/name:paused")["paused"]
    assert kept["until"] == "2090-01-01T00:00:00Z"

    back = world.acme.put(HOLIDAYS, {})
    assert back["moved"]["jobs"] == 2
    for item in back["moved"]["items"]:
        assert (item["added"], item["removed"]) == ([due], [])
    assert world.acme.get("/v1/jobs/name:one")["next_run_at"] == due
    assert world.acme.put(HOLIDAYS, {"description": "new"})["moved"]["jobs"] == 0


def test_a_job_without_a_run_is_finished_and_goes_on_when_there_is_one(world: World) -> None:
    world.acme.put(HOLIDAYS, {}, expect=201)
    once = user(world.acme, "once", {"at": "2090-05-05T12:00:00Z"})
    held = user(world.acme, "held", {"at": "2090-05-05T12:00:00Z"})
    world.acme.post(f"/v1/jobs/{held['id']}/pause", expect=200)
    told = world.acme.put(HOLIDAYS, {"dates": ["2090-05-05"]})
    for item in told["moved"]["items"]:
        assert item["state"] == "finished"
        assert item["next_run_at"] == {"before": "2090-05-05T12:00:00Z", "after": None}
    for job in (once, held):
        found = world.acme.get(f"/v1/jobs/{job['id']}")
        assert (found["state"], found["next_run_at"]) == ("finished", None)
    back = world.acme.put(HOLIDAYS, {})
    assert {i["job"]["name"]: i["state"] for i in back["moved"]["items"]} == {
        "once": "active",
        "held": "paused",
    }
    assert world.acme.get(f"/v1/jobs/{once['id']}")["next_run_at"] == "2090-05-05T12:00:00Z"


def test_a_calendar_that_jobs_use_is_not_deleted(world: World) -> None:
    world.acme.put(HOLIDAYS, {}, expect=201)
    job = user(world.acme, "payroll")
    refused = world.acme.call("DELETE", HOLIDAYS, expect=409).json()
    assert refused["detail"] == "The calendar is used by payroll."
    assert "'payroll'" in refused["errors"][0]["message"]
    world.acme.delete(f"/v1/jobs/{job['id']}")
    world.acme.delete(HOLIDAYS)


def test_who_changed_a_calendar_is_recorded(world: World) -> None:
    world.acme.put(HOLIDAYS, {"weekdays": ["sun"]}, expect=201)
    world.acme.put(HOLIDAYS, {"weekdays": ["sun"]})
    world.acme.put(HOLIDAYS, {"weekdays": ["sat"], "dry_run": True})
    world.acme.put(HOLIDAYS, {"weekdays": ["sat"]})
    world.acme.delete(HOLIDAYS)
    rows = world.database.rows(
        "select action, subject, before->'weekdays', after->'weekdays', actor from audit_log"
        " where subject = 'calendar:holidays' order by at, id"
    )
    assert [row[:4] for row in rows] == [
        ("calendar.create", "calendar:holidays", None, ["sun"]),
        ("calendar.change", "calendar:holidays", ["sun"], ["sat"]),
        ("calendar.delete", "calendar:holidays", ["sat"], None),
    ]
    assert all(str(row[4]).startswith("key:") for row in rows)


@pytest.mark.parametrize("mode", ["skip", "next_allowed"])
@pytest.mark.parametrize(
    "calendar",
    [
        {"windows": [{"from": "00:00", "to": "24:00"}]},
        {"events": [{"start": "2026-01-01", "rrule": "FREQ=DAILY"}]},
    ],
    ids=["windows", "rule"],
)
def test_a_calendar_of_all_time_leaves_no_run(
    acme: Caller, mode: str, calendar: dict[str, Any]
) -> None:
    use = {"exclude": ["holidays"], "on_excluded": mode}
    daily = {"cron": "0 9 * * *"}
    acme.put(HOLIDAYS, {}, expect=201)
    names = ["one", "two", "three"]
    made = [acme.create(name, schedule=daily, calendars=use) for name in names]
    changed = acme.put(HOLIDAYS, calendar)
    assert moved_names(changed) == sorted(names)
    assert {item["state"] for item in changed["moved"]["items"]} == {"finished"}
    for job in made:
        assert acme.get(f"/v1/jobs/{job['id']}")["state"] == "finished"
    document = {"name": "four", "schedule": daily, "calendars": use} | {
        "target": acme.get(f"/v1/jobs/{made[0]['id']}")["target"]
    }
    refused = acme.post("/v1/jobs", document, expect=422)
    assert "no run within 20 years under its calendars" in str(refused["errors"])
    shown = acme.post("/v1/schedules/preview", {"schedule": daily, "calendars": use}, expect=200)
    assert all("excluded:holidays" in item["notes"] for item in shown["items"])
    assert bool(shown["items"]) is (mode == "skip")
