"""`tickrail apply`, `diff` and `export` against the real API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.api.test_calendar_cli import Said, tickrail
from tests.support.api import Caller, World

pytestmark = pytest.mark.integration
__all__ = ["tickrail"]

Tickrail = Callable[..., Said]
HOOK = "https://example.org/hook"
JOBS = """# Jobs of billing
name: nightly
schedule: {cron: 0 2 * * *, time_zone: Europe/Berlin}
calendars: {exclude: [holidays]}
target: {webhook: {url: "${HOOK}"}}
tags: {team: billing}
---
name: poll
schedule: {every: 15m}
overlap: ${OVERLAP:-allow}
target:
  webhook: {url: "${HOOK}", method: GET}
payload: {text: "$${HOME}", "on": 22:00}
retry: {max_attempts: 3, not_on: [http_4xx]}
"""
HOLIDAYS = '{"kind": "calendar", "name": "holidays", "yearly": ["12-25"]}'
LIMITS = "kind: queue-limits\nname: default\nmax_running: 5\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of documents, `billing`, in the folder where `tickrail` runs."""
    monkeypatch.setenv("HOOK", HOOK)
    made = tmp_path / "billing"
    (made / "more").mkdir(parents=True)
    (made / "jobs.yaml").write_text(JOBS)
    (made / "more" / "holidays.json").write_text(HOLIDAYS)
    (made / "more" / "limits.yml").write_text(LIMITS)
    (made / "README.md").write_text("no document")
    return made


def versions(caller: Caller) -> dict[str, int]:
    return {job["name"]: job["version"] for job in caller.every("/v1/jobs")}


def test_a_folder_is_applied_once(world: World, tickrail: Tickrail, folder: Path) -> None:
    assert folder.is_dir()
    code, out, err = tickrail("apply", "-f", "billing", "--dry-run")
    assert (code, err) == (0, "")
    assert "  +calendars:\n  +  exclude:\n  +  - holidays" in out
    assert out.splitlines()[-1].endswith("3 to create, 1 to change, 0 unchanged, 0 to delete")
    assert world.acme.every("/v1/jobs") == []
    assert tickrail("diff", "-f", "billing")[0] == 1

    code, out, err = tickrail("apply", "-f", "billing")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "created calendar holidays",
        "changed queue-limits default",
        "created nightly",
        "created poll",
        "set billing: 3 created, 1 changed, 0 unchanged, 0 deleted",
    ]
    poll = world.acme.get("/v1/jobs/name:poll")
    assert (poll["overlap"], poll["tags"]) == ("allow", {"set": "billing"})
    assert poll["payload"] == {"text": "${HOME}", "on": "22:00"}
    assert world.acme.get("/v1/queues/default")["tenant"]["max_running"] == 5

    code, out, _ = tickrail("apply", "-f", "billing")
    assert out == "set billing: 0 created, 0 changed, 4 unchanged, 0 deleted"
    same = "set billing: 0 to create, 0 to change, 4 unchanged, 0 to delete"
    assert tickrail("diff", "-f", "billing")[:2] == (0, same)
    assert versions(world.acme) == {"nightly": 1, "poll": 1}


def test_a_change_is_shown_and_made(
    world: World, tickrail: Tickrail, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tickrail("apply", "-f", str(folder))[0] == 0
    monkeypatch.setenv("OVERLAP", "buffer_one")
    code, out, _ = tickrail("diff", "-f", "billing")
    assert code == 1
    assert [line for line in out.splitlines() if line.strip()[:1] in "+-"] == [
        "  -overlap: '***'",
        "  +overlap: ${OVERLAP:-allow}",
    ]
    answer = json.loads(tickrail("apply", "-f", "billing", "--output", "json")[1])
    assert (answer["changed"], answer["unchanged"], answer["errors"]) == (1, 3, [])
    [item] = answer["items"]
    assert (item["name"], item["action"], item["where"]) == (
        "poll",
        "changed",
        "billing/jobs.yaml:8",
    )
    assert (item["before"]["overlap"], item["after"]["overlap"]) == ("***", "${OVERLAP:-allow}")
    assert world.acme.get("/v1/jobs/name:poll")["overlap"] == "buffer_one"
    assert versions(world.acme) == {"nightly": 1, "poll": 2}


def test_prune_deletes_jobs_of_the_set_alone(
    world: World, tickrail: Tickrail, folder: Path
) -> None:
    world.acme.create("other", tags={"set": "else"})
    world.acme.create("bare")
    assert tickrail("apply", "-f", "billing")[0] == 0
    (folder / "jobs.yaml").write_text(JOBS.partition("---\n")[2])
    code, out, _ = tickrail("apply", "-f", "billing")
    assert (code, out.splitlines()[-1]) == (
        0, "set billing: 0 created, 0 changed, 3 unchanged, 0 deleted"
    )  # fmt: skip
    code, out, err = tickrail("apply", "-f", "billing", "--prune")
    assert (code, out) == (2, "")
    assert "Delete the job nightly?" in err
    code, out, _ = tickrail("diff", "-f", "billing", "--prune")
    assert (code, out.splitlines()[0]) == (1, "deleted nightly")
    assert set(versions(world.acme)) == {"other", "bare", "nightly", "poll"}
    code, out, _ = tickrail("apply", "-f", "billing", "--prune", "--yes")
    assert (code, out.splitlines()[0]) == (0, "deleted nightly")
    assert set(versions(world.acme)) == {"other", "bare", "poll"}


def test_nothing_is_written_unless_every_document_is_valid(
    world: World, tickrail: Tickrail, folder: Path
) -> None:
    (folder / "bad.yaml").write_text(
        "name: bad\nschedule:\n  cron: 61 * * * *\nqueue: nowhere\ntarget:\n"
        "  webhook: {url: 'https://example.org/'}\n---\nname: worse\ntargt: {}\n"
    )
    code, out, err = tickrail("apply", "-f", "billing")
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("billing/bad.yaml:3: bad: /schedule/cron")
    assert any(line.startswith("billing/bad.yaml:9: worse: /targt") for line in lines)
    assert lines[-1] == "nothing was changed"
    assert world.acme.every("/v1/jobs") == []
    assert world.acme.every("/v1/calendars") == []
    assert tickrail("diff", "-f", "billing")[0] == 2


def test_what_could_not_be_compared_is_no_difference(
    world: World, tickrail: Tickrail, folder: Path
) -> None:
    """A pipeline must not take a revoked key for a change."""
    wrong = world.acme.token[:-4] + "aaaa"
    code, out, err = tickrail("--key", wrong, "diff", "-f", "billing")
    assert (code, out) == (2, "")
    assert "--key" in err
    assert tickrail("diff", "-f", "nowhere")[0] == 2
    assert tickrail("--url", "http://127.0.0.1:9", "diff", "-f", "billing")[0] == 3
    assert folder.is_dir()


def test_every_problem_of_every_document_is_told_at_once(
    world: World, tickrail: Tickrail, folder: Path
) -> None:
    (folder / "bad.yaml").write_text(
        "name: a\nschedul: {every: 1m}\ntarget: {noop: {}}\n---\n"
        "name: Bad Name\nschedule: {cron: 61 * * * *}\ntarget:\n"
        "  webhook: {url: 'http://10.0.0.1/'}\n---\ntags: {set: other}\n"
    )
    code, _, err = tickrail("apply", "-f", "billing")
    assert code == 1
    for line in (
        "billing/bad.yaml:2: a: /schedul: ",
        "billing/bad.yaml:5: Bad Name: /name: ",
        "billing/bad.yaml:6: /schedule/cron: ",
        "billing/bad.yaml:8: /target/webhook/url: ",
        "billing/bad.yaml:10: /name: is missing",
        "billing/bad.yaml:10: /tags/set: is 'other', and the set is 'billing' (leave it out, or",
        "billing/bad.yaml:10: /target: ",
    ):
        assert line in err
    assert err.count("/name") == 2
    assert world.acme.every("/v1/jobs") == []


def test_a_job_that_is_there_joins_the_set_and_no_change_is_lost(
    world: World, tickrail: Tickrail, folder: Path
) -> None:
    world.acme.create("poll", schedule={"every": "15m"})
    assert folder.is_dir()
    code, out, _ = tickrail("apply", "-f", "billing", "--dry-run")
    assert (code, "changed poll" in out, "+  set: billing" in out) == (0, True, True)
    assert tickrail("apply", "-f", "billing")[0] == 0
    assert versions(world.acme) == {"nightly": 1, "poll": 2}


def test_what_is_exported_is_applied_as_it_was(
    world: World, tickrail: Tickrail, folder: Path
) -> None:
    assert tickrail("apply", "-f", "billing")[0] == 0
    world.acme.create("daily", schedule={"calendar": {"every": 1, "unit": "day", "at": "02:00"}})
    world.acme.post("/v1/jobs/name:daily/pause", {}, expect=200)
    code, out, _ = tickrail("export", "--set", "billing", "-o", "out")
    assert (code, out) == (
        0, "Wrote 3 files; `tickrail apply -f out --set billing` reads them."
    )  # fmt: skip
    text = (folder.parent / "out" / "nightly.yaml").read_text()
    assert text == (
        "name: nightly\ntags:\n  team: billing\nschedule:\n  cron: 0 2 * * *\n"
        "  time_zone: Europe/Berlin\ncalendars:\n  exclude:\n  - holidays\ntarget:\n"
        "  webhook:\n    url: https://example.org/hook\n"
    )
    code, out, _ = tickrail("apply", "-f", "out", "--set", "billing", "--prune")
    assert (code, out) == (0, "set billing: 0 created, 0 changed, 3 unchanged, 0 deleted")
    whole = tickrail("export")[1]
    (folder.parent / "whole.yaml").write_text(whole + "\n")
    code, out, _ = tickrail("apply", "-f", "whole.yaml", "--no-set")
    assert (code, out) == (0, "0 created, 0 changed, 4 unchanged, 0 deleted")
    assert "paused: true" in whole
    for name in versions(world.acme):
        world.acme.delete(f"/v1/jobs/name:{name}")
    assert tickrail("apply", "-f", "whole.yaml", "--no-set")[0] == 0
    assert tickrail("export")[1] == whole


def test_values_of_variables_are_not_shown(
    world: World, tickrail: Tickrail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(
        "name: one\nschedule: {cron: 0 2 * * *}\ntarget:\n  webhook:\n"
        '    url: "https://example.org/${PART:-hook}"\n'
        '    headers: {Authorization: "Bearer ${TOKEN}"}\n'
    )

    def said(*words: str) -> str:
        code, out, err = tickrail(*words, "-f", str(file))
        assert code in (0, 1)
        return out + err

    monkeypatch.setenv("TOKEN", "first-of-the-tokens")
    seen = [said("diff"), said("apply", "--dry-run", "--output", "json"), said("apply")]
    assert "Authorization: Bearer ${TOKEN}" in seen[0]
    assert "https://example.org/hook" in seen[0], "a default stands in the file"
    monkeypatch.setenv("TOKEN", "the-second-one")
    seen += [said("diff"), said("apply", "--dry-run", "--output", "yaml")]
    changed = [line.strip() for line in seen[3].splitlines() if line.strip()[:1] in "+-"]
    assert changed == ["-      Authorization: '***'", "+      Authorization: Bearer ${TOKEN}"]
    monkeypatch.setenv("PART", "bad part")
    seen.append(said("apply", "--dry-run"))
    assert "/target/webhook/url" in seen[-1]
    for value in ("first-of-the-tokens", "the-second-one", "bad part"):
        assert not any(value in one for one in seen), value
    header = world.acme.get("/v1/jobs/name:one")["target"]["webhook"]["headers"]["Authorization"]
    assert header == "Bearer first-of-the-tokens"
