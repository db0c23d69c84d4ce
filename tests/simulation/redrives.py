"""Redrives: what the caller saw, and what a launch's next life must be like."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.account import Seen

REDRIVES = {(end, begin) for end in ("dead", "abandoned") for begin in ("due", "held")}
"""The moves out of an end."""


class RedriveRules:
    """What is asked of each redrive."""

    def __init__(self) -> None:
        self._seen: dict[UUID, int] = {}

    def asked(self, launch: UUID, count: int) -> None:
        """Somebody asks for a redrive of a launch that was redriven so often when they saw it."""
        self._seen[launch] = count

    def redriven(self, launch: UUID, name: str, before: Seen, now: Seen) -> None:
        """A launch is redriven."""
        if (before.state, now.state) not in REDRIVES:
            raise Violation("allowed moves", f"{name}: {before.state} -> {now.state} by a redrive")
        if before.redrives != self._seen.get(launch):
            raise Violation(
                "a redrive is of what was seen",
                f"{name}: redriven {before.redrives} times, seen {self._seen.get(launch)}",
            )
        if now.redrives != before.redrives + 1:
            raise Violation("a redrive is counted", f"{name}: {before.redrives}, {now.redrives}")
        if now.attempt != before.attempt + 1 or now.failures != 0:
            told = f"attempt {before.attempt} -> {now.attempt}, failures {now.failures}"
            raise Violation("attempts", f"{name}: {told} by a redrive")
