"""A claimed attempt as its worker keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tickrail.core.execution import Run
from tickrail.core.ports_tracing import NOTHING, Span
from tickrail.core.ports_worker import Claimed


@dataclass(frozen=True, slots=True)
class JobText:
    """What a run needs of its job's definition."""

    name: str
    target: Mapping[str, Any]
    payload: object
    timeout: float
    retry: Mapping[str, Any]  # read when an attempt fails
    wakes: bool


@dataclass(slots=True, eq=False)
class Active:
    """A claimed attempt.

    `trace`: the traceparent of its launch; `published`: that of the message's publication.
    `span`: of its run. `sent`: the monotonic time at which its claim was last asked for. `took`:
    the seconds that its run took, once it has ended.
    """

    claimed: Claimed
    sent: float
    place: tuple[str, int, int]
    offset: int
    trace: str | None = None
    published: str | None = None
    span: Span = NOTHING
    job: JobText | None = None
    run: Run | None = None
    extended: bool = False
    stopping: bool = False
    named: bool = False
    claimed_at: float = field(default=0.0)
    took: float | None = None
