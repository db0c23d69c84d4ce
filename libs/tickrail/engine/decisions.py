"""Decisions that jobs share: what is alike in everything that matters is decided once a batch.

After an outage, and at every full minute, thousands of jobs with the same few schedules wait for
the same instants. What a tick decides for one of them it decides for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import Decision, Situation
from tickrail.core.schedule import Cron

Decide = Callable[[Plan, Situation, datetime], Decision]
_ANY = JobId(UUID(int=0))


class SharedDecisions:
    """Remembers the decisions of one `now`."""

    def __init__(self, decide: Decide) -> None:
        """Decisions as `decide` makes them.

        Args:
            decide: asked where the plan, the situation or the instant is another one. What it says
                must depend on the job's id only through jitter and hashed schedules.
        """
        self._decide = decide
        self._now: datetime | None = None
        # The plan is kept beside the decision: an id is not used again while its object lives.
        self._made: dict[tuple[int, Situation], tuple[Plan, Decision]] = {}

    def __call__(self, plan: Plan, s: Situation, now: datetime) -> Decision:
        """The decision for one job; only cron expressions are shared by many."""
        if plan.jitter or not isinstance(plan.schedule, Cron):
            return self._decide(plan, s, now)
        if now != self._now:
            self._made.clear()
            self._now = now
        launched = 0 if plan.max_launches is None else s.launched
        key = (id(plan), replace(s, job=_ANY, launched=launched))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = (plan, self._decide(plan, s, now))
        return found[1]
