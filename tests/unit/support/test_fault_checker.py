"""The checker of the fault tests finds nothing in a good history and each planted mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault import checker
from tests.fault.checker import judge
from tests.fault.history import load, save
from tests.fault.judgement import report, too_little
from tests.support.fault_story import JOB, NEW, OLD, Story, at, ended, good


def test_a_good_history_is_right_and_tells_how_long_recovery_took() -> None:
    story, _ = ended()
    found = judge(story.told(2))
    assert not found.breaches, report(found)
    assert found.recovery == [(f"kill of {OLD}", {0: 4.0})]
    assert found.slowest() == 4.0
    counts = {"raises": 2, "slots": 2, "launches": 2, "effects": 2, "writes": 10, "faults": 1}
    counts["skipped"] = 0
    assert found.counts == counts
    assert report(found).endswith("every rule holds")


def test_a_repeated_effect_is_listed_with_its_reason() -> None:
    story, keys = good()
    story.fault(5.65, "kill", "worker-2")
    story.lose(11, NEW, keys[1])
    story.run(12, "worker-1", keys[1], 102)
    story.move(12.1, "worker-1", keys[1], state="succeeded")
    found = judge(story.told(2))
    assert not found.breaches, report(found)
    assert [(d.key, d.token, d.why) for d in found.doubled] == [
        (keys[1], 102, f"kill of worker-2 at {at(5.65)}")
    ]


def test_an_uncertain_end_explains_a_repeated_effect() -> None:
    story, keys = good()
    story.lose(11, "worker-2", keys[1])
    story.run(12, "worker-1", keys[1], 102)
    story.move(12.1, "worker-1", keys[1], state="succeeded")
    found = judge(story.told(2))
    assert not found.breaches
    assert [d.why for d in found.doubled] == ["the attempt before ended uncertain"]


def test_a_skip_stands_for_a_record() -> None:
    story, _ = ended()
    story.skip(6, 3, 5)
    found = judge(story.told(5))
    assert not found.breaches
    assert (found.counts["slots"], found.counts["skipped"]) == (5, 3)
    assert judge(story.told(6)).rules() == {"lost_slot"}


def test_what_calendars_leave_out_has_launches_between() -> None:
    story, _ = ended()
    story.skip(6, 1, 4, "excluded")
    assert not judge(story.told(4)).breaches
    assert judge(story.told(5)).rules() == {"lost_slot"}


@pytest.mark.parametrize("origin", ["manual:1", "backfill:1"])
def test_only_the_schedule_is_bound_to_its_slots(origin: str) -> None:
    story, _ = ended()
    story.skip(6, 3, 3)
    for n, slot in enumerate((3, 2.5, -60)):
        key = story.record(7, NEW, slot, origin)
        story.run(7.1, "worker-1", key, 103 + n)
        story.move(7.2, "worker-1", key, state="succeeded")
    assert not judge(story.told(3)).breaches


def test_a_job_that_waits_for_no_slot_has_none() -> None:
    story, _ = ended()
    other = "0195544e-0000-7000-8000-000000000002"
    story.lines.append({**story.lines[1], "id": other})
    job = {"id": other, "partition": 0, "state": "active", "next_run_at": None}
    story.write(6, "", "jobs", "insert", None, job)
    assert not judge(story.told(2)).breaches


Plant = Callable[[Story, list[str]], object]


def lost_slot(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 4)
    story.run(6.1, "worker-1", key, 103)
    story.move(6.2, "worker-1", key, state="succeeded")


def second_record(story: Story, keys: list[str]) -> None:
    story.write(6, NEW, "launches", "insert", None, {**story.rows[keys[0]], "state": "due",
                                                     "epoch": 11})  # fmt: skip


def other_id(story: Story, keys: list[str]) -> None:
    key = "0195544e-0000-8000-8000-000000000009"
    row = {**story.rows[keys[0]], "id": key, "state": "due", "epoch": 11}
    story.write(6, NEW, "launches", "insert", None, row)
    story.rows[key] = row
    story.run(6.1, "worker-1", key, 104)
    story.move(6.2, "worker-1", key, state="succeeded")


def other_id_for_a_slot_of_its_own(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3, "manual:1")
    story.lines[-1]["new"]["origin"] = story.rows[key]["origin"] = "schedule"
    story.run(6.1, "worker-1", key, 104)
    story.move(6.2, "worker-1", key, state="succeeded")


def skipped_too(story: Story, _: list[str]) -> None:
    story.skip(6, 2, 2)


def skipped_in_a_range(story: Story, keys: list[str]) -> None:
    skipped_twice(story, keys, 1)


def skipped_twice(story: Story, _: list[str], first: int = 5) -> None:
    story.skip(6, 3, 5)
    story.skip(7, first, 6, "overlap")


def skip_deleted(story: Story, _: list[str]) -> None:
    story.write(7, "", "skips", "delete", story.skip(6, 3, 5), None)


def skip_changed(story: Story, _: list[str]) -> None:
    row = story.skip(6, 3, 5)
    story.write(7, NEW, "skips", "update", row, {**row, "last_at": at(6), "count": 4})


def launched_at(story: Story, slot: float, seconds: float = 6) -> None:
    key = story.record(seconds, NEW, slot)
    story.run(seconds + 0.1, "worker-1", key, 104)
    story.move(seconds + 0.2, "worker-1", key, state="succeeded")


def between_two_slots(story: Story, _: list[str]) -> None:
    launched_at(story, 1.5)


def before_the_first_slot(story: Story, _: list[str]) -> None:
    launched_at(story, -3600)


def of_another_job(story: Story, _: list[str]) -> None:
    launched_at(story, 2)
    other = "0195544e-0000-7000-8000-000000000002"
    for line in story.lines[-4:]:
        if line["kind"] == "write":
            line["new"]["job_id"] = other


def skipped_between_two_slots(story: Story, _: list[str]) -> None:
    story.skip(6, 1.5, 1.5)


def launched_early(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 30)
    story.run(30.1, "worker-1", key, 104)
    story.move(30.2, "worker-1", key, state="succeeded")


def skipped_early(story: Story, _: list[str]) -> None:
    story.skip(6, 3, 30)


def ran_early(story: Story, _: list[str]) -> None:
    launched_at(story, 8, 8)
    next(line for line in story.lines if line.get("token") == 104)["begin"] = at(6)


def deleted(story: Story, keys: list[str]) -> None:
    story.write(6, "", "launches", "delete", story.rows[keys[0]], None)


def old_owner(story: Story, _: list[str]) -> None:
    job = {"id": JOB, "partition": 0, "state": "active", "next_run_at": at(4)}
    story.write(6, OLD, "jobs", "update", job, {**job, "next_run_at": at(5)})


def under_the_old_epoch(story: Story, _: list[str]) -> None:
    """The owner's transaction saw the fence before the takeover, and landed after it."""
    story.fence["epoch"] = 10
    job = {"id": JOB, "partition": 0, "state": "active", "next_run_at": at(4)}
    story.write(6, OLD, "jobs", "update", job, {**job, "next_run_at": at(5)})
    story.fence["epoch"] = 11


def record_of_an_old_epoch(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.lines[-1]["new"]["epoch"] = 10
    story.run(6.1, "worker-1", key, 103)
    story.move(6.2, "worker-1", key, state="succeeded")


def lower_raise(story: Story, _: list[str]) -> None:
    story.take(6, OLD, 9)


def equal_raise(story: Story, _: list[str]) -> None:
    story.take(6, OLD, 12)
    story.fence["epoch"] = 11
    story.take(6.1, NEW, 12)


def out_of_an_end(story: Story, keys: list[str]) -> None:
    story.move(6, "worker-1", keys[0], state="cancelled")


def by_the_wrong_one(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.move(6.1, "worker-1", key, state="queued")
    story.run(6.2, "worker-1", key, 103)
    story.move(6.3, "worker-1", key, state="succeeded")


def attempt_back(story: Story, keys: list[str]) -> None:
    story.move(6, "worker-1", keys[0], attempt=0)


def attempt_leaps(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)
    story.lose(6.2, "worker-1", key, certain=False)
    story.lines[-1]["new"]["attempt"] = story.rows[key]["attempt"] = 3
    story.run(6.3, "worker-1", key, 104)
    story.move(6.4, "worker-1", key, state="succeeded")


def attempt_stays(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)
    story.move(6.2, "worker-1", key, state="due")
    story.lines[-1]["new"]["attempt"] = story.rows[key]["attempt"] = 1
    story.fault(6.2, "kill", "worker-1")
    story.run(6.3, "worker-1", key, 104)
    story.move(6.4, "worker-1", key, state="succeeded")


def claim_is_lower(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)
    story.lose(6.2, "worker-1", key)
    story.move(6.3, "worker-1", key, state="running", claim=50)
    story.move(6.4, "worker-1", key, state="succeeded")


def claim_is_taken_away(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)
    story.move(6.2, "worker-2", key, claim=104)
    story.move(6.4, "worker-1", key, state="succeeded")


def ended_by_another(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)
    story.lose(6.2, "worker-1", key)
    story.lines[-2]["new"]["claim"] = 99
    story.lines = [line for line in story.lines if line.get("key") != key]
    story.run(6.3, "worker-2", key, 105)
    story.move(6.4, "worker-2", key, state="succeeded")


def success_without_effect(story: Story, keys: list[str]) -> None:
    story.lines = [line for line in story.lines if line.get("key") != keys[0]]


def effect_of_nothing(story: Story, _: list[str]) -> None:
    story.effect(6, "0195544e-0000-8000-8000-00000000000a", 103)


def effect_without_claim(story: Story, keys: list[str]) -> None:
    story.effect(6, keys[0], 99, accepted=True)


def effect_twice(story: Story, keys: list[str]) -> None:
    story.fault(1.25, "kill", "worker-1")
    story.effect(6, keys[0], 100)


def repeated_for_nothing(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)
    story.lose(6.2, "worker-1", key, certain=True)
    story.fault(6.5, "kill", "worker-2")
    story.run(7, "worker-2", key, 104)
    story.move(7.1, "worker-2", key, state="succeeded")


def refused_for_nothing(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.move(6.1, "worker-1", key, state="running", claim=103)
    story.lose(6.2, "worker-1", key)
    story.run(7, "worker-2", key, 104)
    story.move(7.1, "worker-2", key, state="succeeded")
    story.effect(8, key, 103, accepted=False)


def accepted_backwards(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.move(6.1, "worker-1", key, state="running", claim=103)
    story.lose(6.2, "worker-1", key)
    story.run(7, "worker-2", key, 104)
    story.move(7.1, "worker-2", key, state="succeeded")
    story.effect(8, key, 103)


def not_begun(story: Story, _: list[str]) -> None:
    story.lines = [line for line in story.lines if line.get("table") != "jobs"]


def without_writes(story: Story, _: list[str]) -> None:
    story.lines = story.lines[:2]


def without_jobs(story: Story, _: list[str]) -> None:
    story.lines = story.lines[:1]


def before_all_slots(story: Story, _: list[str]) -> None:
    story.lines = [line for line in story.lines if line.get("table") in {None, "jobs"}]
    story.lines = [line for line in story.lines if line["kind"] != "effect"]


def open_at_the_end(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.run(6.1, "worker-1", key, 103)


def begins_running(story: Story, _: list[str]) -> None:
    key = story.record(6, NEW, 3)
    story.lines[-1]["new"]["state"] = "queued"
    story.run(6.1, "worker-1", key, 103)
    story.move(6.2, "worker-1", key, state="succeeded")


def attempt_changed(story: Story, keys: list[str]) -> None:
    row = {"launch_id": keys[0], "claim": 100, "certain": True}
    story.write(6, "worker-1", "attempts", "update", row, row)


PLANTS: list[tuple[Plant, str, int]] = [
    (lost_slot, "lost_slot", 4),
    (second_record, "one_record", 2),
    (other_id, "one_record", 2),
    (other_id_for_a_slot_of_its_own, "one_record", 3),
    (skipped_too, "one_record", 2),
    (skipped_in_a_range, "one_record", 6),
    (skipped_twice, "one_record", 6),
    (skip_deleted, "one_record", 5),
    (skip_changed, "one_record", 5),
    (between_two_slots, "made_up", 2),
    (before_the_first_slot, "made_up", 2),
    (of_another_job, "made_up", 2),
    (skipped_between_two_slots, "made_up", 2),
    (launched_early, "early", 2),
    (skipped_early, "early", 2),
    (ran_early, "early", 2),
    (not_begun, "nothing", 2),
    (without_writes, "nothing", 2),
    (without_jobs, "nothing", 2),
    (before_all_slots, "nothing", 0),
    (deleted, "one_record", 2),
    (old_owner, "deposed", 2),
    (under_the_old_epoch, "deposed", 2),
    (record_of_an_old_epoch, "deposed", 3),
    (lower_raise, "epochs", 2),
    (equal_raise, "epochs", 2),
    (out_of_an_end, "moves", 2),
    (by_the_wrong_one, "moves", 3),
    (begins_running, "moves", 3),
    (attempt_back, "attempts", 2),
    (attempt_leaps, "attempts", 3),
    (attempt_stays, "attempts", 3),
    (attempt_changed, "attempts", 2),
    (claim_is_lower, "claims", 3),
    (claim_is_taken_away, "claims", 3),
    (ended_by_another, "claims", 3),
    (success_without_effect, "effects", 2),
    (effect_of_nothing, "effects", 2),
    (effect_without_claim, "effects", 2),
    (effect_twice, "effects", 2),
    (repeated_for_nothing, "effects", 3),
    (refused_for_nothing, "tokens", 3),
    (accepted_backwards, "tokens", 3),
    (open_at_the_end, "unfinished", 3),
]


@pytest.mark.parametrize(("plant", "rule", "last"), PLANTS, ids=[p.__name__ for p, *_ in PLANTS])
def test_a_planted_mistake_is_found(plant: Plant, rule: str, last: int) -> None:
    story, keys = ended()
    plant(story, keys)
    found = judge(story.told(last))
    assert rule in found.rules(), report(found)


def test_what_must_not_run_twice_may_not_even_with_a_reason() -> None:
    story, keys = good(rerun=False)
    story.fault(5.65, "kill", "worker-2")
    story.lose(11, NEW, keys[1])
    story.run(12, "worker-1", keys[1], 102)
    story.move(12.1, "worker-1", keys[1], state="succeeded")
    assert judge(story.told(2)).rules() == {"effects"}
    story.fault(5.7, checker.LOSES_TRANSACTIONS, "postgres")
    assert not judge(story.told(2)).breaches


@pytest.mark.parametrize(("failover", "found"), [(6.5, set()), (5.5, {"effects"})])
def test_the_claim_of_an_effect_may_be_lost_with_the_last_transactions_and_only_so(
    failover: float, found: set[str]
) -> None:
    story, _ = ended()
    key = story.record(6, NEW, 3)
    story.effect(6.1, key, 103, accepted=True)
    story.fault(failover, checker.LOSES_TRANSACTIONS, "postgres")
    story.run(7, "worker-1", key, 104)
    story.move(7.1, "worker-1", key, state="succeeded")
    assert judge(story.told(3)).rules() == found


@pytest.mark.parametrize(
    ("slots", "effects", "said"),
    [
        (2, 4, []),
        (3, 2, ["2 slots, and not 3 or more", "2 launches, and not 3 or more"]),
        (2, 5, ["2 effects, and not 3 or more"]),
    ],
)
def test_a_good_history_of_too_little_is_named(slots: int, effects: int, said: list[str]) -> None:
    story, _ = ended()
    assert too_little(judge(story.told(2)), slots, effects) == said


def test_a_history_without_slots_is_too_little() -> None:
    story = Story()
    found = too_little(judge(story.told(0)), 0, 0)
    assert found == ["0 slots, and not 1 or more", "0 launches, and not 1 or more"]


def test_a_saved_history_is_judged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story, keys = ended()
    right = save(story.told(2), tmp_path / "right.jsonl")
    assert load(right) == json.loads(json.dumps(story.told(2)))
    assert checker.main([str(right)]) == 0
    assert "every rule holds" in capsys.readouterr().out
    deleted(story, keys)
    wrong = save(story.told(2), tmp_path / "wrong.jsonl")
    assert checker.main([str(right), str(wrong)]) == 1
    assert "BREACH one_record" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "is no history"),
        ('["kind"]\n', "a line is no object with a kind"),
        ('{"kind": "header"}\n', "a history has one line of kind 'end', and not 0"),
        ("", "a history has one line of kind 'header', and not 0"),
    ],
)
def test_what_is_no_history_is_named_in_one_line(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.jsonl"
    if content is not None:
        path.write_text(content)
    assert checker.main([str(path)]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert said in told
    assert told.count("\n") == 1


def test_no_file_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")
