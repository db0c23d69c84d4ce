"""The rules of a chaos run find what breaks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from tests.fault.chaos import MAX_ATTEMPTS, Chaos, Snapshot, Start
from tests.fault.chaos_checks import Verdict, judge

AT = datetime(2026, 1, 1, tzinfo=UTC)
WORK = ("tickrail.launch.default.normal", 0)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


@dataclass
class Story:
    """What the database, the topics and the receiver say of one job of two slots.

    The first launch fails once and succeeds; the second succeeds at once.
    """

    rows: dict[str, list[Any]] = field(
        default_factory=lambda: {
            # id, job, state, attempt, failures, claim, due, queued, started, initial, slot
            "a": [
                "a",
                "j",
                "succeeded",
                2,
                1,
                12,
                after(2),
                after(2.1),
                after(2.2),
                "1s",
                after(0),
            ],
            "b": [
                "b",
                "j",
                "succeeded",
                1,
                0,
                11,
                after(1),
                after(1.1),
                after(1.2),
                "1s",
                after(1),
            ],
        }
    )
    ended: dict[tuple[str, int], tuple[int, datetime, str]] = field(
        default_factory=lambda: {("a", 1): (10, after(1), "http_500")}
    )
    starts: list[Start] = field(
        default_factory=lambda: [
            Start("a", 1, 10, after(0.2), True),
            Start("b", 1, 11, after(1.2), False),
            Start("a", 2, 12, after(2.2), False),
        ]
    )
    snapshots: list[Snapshot] = field(
        default_factory=lambda: [Snapshot(after(1.5), {WORK: 2}, set())]
    )
    lost: float = 0.0

    def judged(self) -> Verdict:
        return judge(cast("Chaos", self))

    # --- what a Chaos has -------------------------------------------------------------------------

    ids = ("j",)
    last = after(1)
    kills = ()
    outages = ()

    @property
    def found(self) -> Story:
        return self

    @property
    def journal(self) -> Story:
        return self

    def messages(self) -> list[tuple[str, int, int, str, int]]:
        return [(*WORK, 0, "a", 1), (*WORK, 1, "b", 1), ("tickrail.retry.default", 0, 0, "a", 2)]

    def away(self, _at: datetime) -> bool:
        return False

    def metric(self, _process: str, _name: str) -> float:
        return self.lost

    def query(self, text: str, *_parameters: object) -> list[Any]:
        if "from launches" in text:
            return list(self.rows.values())
        if "array_agg" in text:
            launches = {launch for launch, _ in self.ended}
            of = {
                x: sorted((n, c) for (y, n), (c, _, _) in self.ended.items() if y == x)
                for x in launches
            }
            return [(x, [n for n, _ in of[x]], [c for _, c in of[x]]) for x in launches]
        if "count(*)" in text:
            return [(0,)]
        return [(launch, n, at, why) for (launch, n), (_, at, why) in self.ended.items()]


def column(story: Story, launch: str, number: int, value: object) -> None:
    story.rows[launch][number] = value


def committed(story: Story, offset: int, *not_done: tuple[str, int]) -> None:
    story.snapshots.append(Snapshot(after(1.6), {WORK: offset}, set(not_done)))


def test_a_sound_history_breaks_no_rule() -> None:
    found = Story().judged()
    assert found.breaches == []
    assert found.figures["retries measured"] == 1
    story = Story()
    committed(story, 1, ("b", 1))  # not passed yet
    assert story.judged().breaches == []


@pytest.mark.parametrize(
    ("rule", "plant"),
    [
        ("ended", lambda s: column(s, "b", 2, "queued")),
        ("ended", lambda s: s.rows.pop("a") and s.rows.pop("b")),
        ("failures", lambda s: column(s, "a", 4, MAX_ATTEMPTS + 1)),
        ("failures", lambda s: column(s, "a", 2, "dead")),
        ("numbers", lambda s: column(s, "a", 3, 3)),
        ("numbers", lambda s: column(s, "a", 5, 9)),
        ("numbers", lambda s: s.starts.append(Start("a", 3, 12, after(3), False))),
        ("numbers", lambda s: s.starts.insert(0, Start("a", 3, 9, after(0.1), False))),
        ("once", lambda s: s.starts.append(Start("b", 1, 13, after(3), False))),
        ("effects", lambda s: s.starts.pop(1)),
        ("offsets", lambda s: committed(s, 2, ("b", 1))),
        ("lost", lambda s: setattr(s, "lost", 3.0)),
        ("delays", lambda s: column(s, "a", 8, after(1.9))),
        ("delays", lambda s: column(s, "a", 6, after(1.4))),
        ("delays", lambda s: column(s, "a", 6, after(9))),
        ("delays", lambda s: column(s, "a", 7, after(4))),
    ],
)
def test_what_breaks_a_rule_is_found(rule: str, plant: Any) -> None:
    story = Story()
    plant(story)
    assert {b.partition(":")[0] for b in story.judged().breaches} & {rule}
