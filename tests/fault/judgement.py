"""What the checker of the fault tests found in a history, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Breach:
    """A rule that does not hold, and the line that shows it."""

    rule: str
    what: str
    line: Line | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}" + (f"\n    {json.dumps(self.line)}" if self.line else "")


@dataclass(frozen=True)
class Doubled:
    """An effect of a launch beyond its first, and why that may be."""

    key: str
    token: int
    why: str
    accepted: bool


@dataclass
class Judgement:
    """What the checker found.

    Attributes:
        breaches: rules that do not hold.
        doubled: doubled effects, each explained.
        recovery: for each fault that named partitions, the seconds until the next launch record of
            each of them; None where there was none.
        counts: slots up to the end, and those of them in skip records; launches, effects, raises,
            writes and faults that were looked at.
    """

    breaches: list[Breach] = field(default_factory=list)
    doubled: list[Doubled] = field(default_factory=list)
    recovery: list[tuple[str, dict[int, float | None]]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def rules(self) -> set[str]:
        """The rules that do not hold."""
        return {b.rule for b in self.breaches}

    def slowest(self) -> float:
        """The longest time to recover, seconds; 0 without any."""
        return max((s or 0.0 for _, found in self.recovery for s in found.values()), default=0.0)


def report(judgement: Judgement) -> str:
    """The judgement in words, a line each."""
    said = [f"{name}: {count}" for name, count in judgement.counts.items()]
    said += [f"doubled effect of {d.key}: {d.why}" for d in judgement.doubled]
    for name, found in judgement.recovery:
        shown = ", ".join(f"{p}: {s:.2f} s" if s else f"{p}: never" for p, s in found.items())
        said.append(f"{name}, until the next launch: {shown}")
    said += [f"BREACH {breach}" for breach in judgement.breaches]
    return "\n".join([*said, "every rule holds" if not judgement.breaches else "not right"])


def too_little(judgement: Judgement, slots: int, effects: int) -> list[str]:
    """Why a history without a breach means nothing: less is in it than must be.

    Args:
        judgement: what was found.
        slots: how many there were at least, by another clock; each is to be launched.
        effects: the slots of them whose runs have effects. What a fault stops may be abandoned
            without one, but not the half of all.
    """
    counts = judgement.counts
    least = {"slots": max(slots, 1), "launches": max(slots, 1), "effects": (effects + 1) // 2}
    return [
        f"{counts.get(what, 0)} {what}, and not {n} or more"
        for what, n in least.items()
        if counts.get(what, 0) < n
    ]
