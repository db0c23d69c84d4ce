"""The checker of the fault tests finds nothing in a good history and each planted mistake."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.fault import checker
from tests.fault.checker import judge, report
from tests.fault.history import load, save

from tickrail.core.ids import JobId, launch_id

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
JOB = "0195544e-0000-7000-8000-000000000001"
OLD, NEW = "scheduler-1", "scheduler-2"
Lines = list[dict[str, Any]]


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


class Story:
    """Makes the lines of a history, one write after the other."""

    def __init__(self, *, rerun: bool = True) -> None:
        self.rerun = rerun
        self.fence: dict[str, Any] = {"partition": 0, "epoch": 0, "owner": ""}
        self.rows: dict[str, dict[str, Any]] = {}
        self.lines: Lines = [
            {
                "kind": "header",
                "partitions": 1,
                "services": {
                    OLD: "scheduler",
                    NEW: "scheduler",
                    "worker-1": "worker",
                    "worker-2": "worker",
                },
            },
            {
                "kind": "job",
                "id": JOB,
                "partition": 0,
                "effects": True,
                "definition": {
                    "name": "job",
                    "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
                    "target": {"webhook": {"url": "https://example.org/"}},
                },
            },
        ]
        self.n = 0
        job = {"id": JOB, "partition": 0, "state": "active", "next_run_at": at(1)}
        self.write(0, "", "jobs", "insert", None, {**job, "last_slot_at": None})

    def write(
        self,
        seconds: float,
        app: str,
        table: str,
        op: str,
        old: dict[str, Any] | None,
        new: dict[str, Any] | None,
    ) -> dict[str, Any]:
        self.n += 1
        line = {
            "kind": "write", "n": self.n, "at": at(seconds), "tx": str(self.n), "app": app,
            "table": table, "op": op, "old": copy.deepcopy(old), "new": copy.deepcopy(new),
            "fence": dict(self.fence),
        }  # fmt: skip
        self.lines.append(line)
        return line

    def take(self, seconds: float, app: str, epoch: int) -> None:
        old = dict(self.fence)
        self.fence = {"partition": 0, "epoch": epoch, "owner": f"{app}-0badf00d"}
        self.write(seconds, app, "partitions", "update", old, self.fence)

    def record(self, seconds: float, app: str, slot: int) -> str:
        scheduled = BEGIN + timedelta(seconds=slot)
        key = str(launch_id(JobId(UUID(JOB)), scheduled, "schedule"))
        row = {
            "id": key, "job_id": JOB, "scheduled_at": at(slot), "origin": "schedule",
            "partition": 0, "state": "due", "attempt": 1, "failures": 0, "claim": None,
            "epoch": self.fence["epoch"], "dlq_owed": False, "rerun": self.rerun,
            "redrive_count": 0,
        }  # fmt: skip
        self.write(seconds, app, "launches", "insert", None, row)
        self.rows[key] = row
        return key

    def move(self, seconds: float, app: str, key: str, **change: Any) -> None:
        old = self.rows[key]
        new = {**old, **change}
        self.write(seconds, app, "launches", "update", old, new)
        self.rows[key] = new

    def lose(self, seconds: float, app: str, key: str, *, certain: bool = False) -> None:
        """The claim has ended without a success; the launch is due again."""
        row = self.rows[key]
        attempt = {
            "launch_id": key, "scheduled_at": row["scheduled_at"], "attempt": row["attempt"],
            "claim": row["claim"], "worker": "worker-1", "outcome": "worker_lost",
            "certain": certain,
        }  # fmt: skip
        self.write(seconds, app, "attempts", "insert", None, attempt)
        self.move(seconds, app, key, state="due", attempt=row["attempt"] + 1)

    def effect(self, seconds: float, key: str, token: int, *, accepted: bool = True) -> None:
        self.lines.append(
            {"kind": "effect", "key": key, "token": token, "attempt": 1, "begin": at(seconds),
             "end": at(seconds + 0.01), "accepted": accepted}
        )  # fmt: skip

    def run(self, seconds: float, worker: str, key: str, claim: int) -> None:
        self.move(seconds, worker, key, state="running", claim=claim)
        self.effect(seconds, key, claim)

    def fault(self, seconds: float, name: str, victim: str, *partitions: int) -> None:
        self.lines.append(
            {"kind": "fault", "at": at(seconds), "name": name, "victim": victim,
             "partitions": list(partitions)}
        )  # fmt: skip

    def told(self, last: int) -> Lines:
        return [*self.lines, {"kind": "end", "last": at(last)}]


def good(*, rerun: bool = True) -> tuple[Story, list[str]]:
    """Slot 1 by the first owner, slot 2 by the second, after the first was killed."""
    story = Story(rerun=rerun)
    story.take(0.2, OLD, 10)
    first = story.record(1, OLD, 1)
    story.move(1.1, OLD, first, state="queued")
    story.run(1.2, "worker-1", first, 100)
    story.move(1.3, "worker-1", first, state="succeeded")
    story.fault(1.5, "kill", OLD, 0)
    story.take(5, NEW, 11)
    second = story.record(5.5, NEW, 2)
    story.run(5.6, "worker-2", second, 101)
    return story, [first, second]


def ended() -> tuple[Story, list[str]]:
    story, keys = good()
    story.move(5.7, "worker-2", keys[1], state="succeeded")
    return story, keys


def test_a_good_history_is_right_and_tells_how_long_recovery_took() -> None:
    story, _ = ended()
    found = judge(story.told(2))
    assert not found.breaches, report(found)
    assert found.recovery == [(f"kill of {OLD}", {0: 4.0})]
    assert found.slowest() == 4.0
    counts = {"raises": 2, "slots": 2, "launches": 2, "effects": 2, "writes": 10, "faults": 1}
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
    skip = {
        "job_id": JOB, "scheduled_at": at(3), "last_at": at(5), "count": 3, "reason": "misfire"
    }  # fmt: skip
    story.write(6, NEW, "skips", "insert", None, skip)
    assert not judge(story.told(5)).breaches
    assert judge(story.told(6)).rules() == {"lost_slot"}


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
