"""When the watchdog tells its operators, and what. Pure.

They are told of each job once for as long as something is wrong with it, of many together; once
more each hour while anything is; and when nothing is any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from tickrail.core.definition import instant_text
from tickrail.core.ids import JobId
from tickrail.core.watch import Finding, Wrong

SHOWN: Final = 20
"""So many jobs are named in an event."""
TOGETHER: Final = timedelta(minutes=1)
"""So long after an event, what is found next is gathered."""
REMIND: Final = timedelta(hours=1)
"""So long after an event it is said again that something is wrong."""


class Said(StrEnum):
    """What an event says; part of its `type`."""

    RAISED = "raised"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Alarm:
    """An event for operators. `text` is a line for people, `data` says it to programs."""

    said: Said
    text: str
    data: Mapping[str, Any]


class AlarmBook:
    """What was told, and when."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._told: dict[JobId, Wrong] = {}
        self._at: datetime | None = None

    def look(self, found: Mapping[JobId, Finding], now: datetime, *, whole: bool) -> Alarm | None:
        """What is to be told now; None: nothing.

        Args:
            found: what is wrong at this moment.
            now: the present; a clock that went back only delays.
            whole: whether every job has been looked at since something was found last.
        """
        known = {job: f.wrong for job, f in found.items() if self._told.get(job) is f.wrong}
        if not found:
            if self._at is None or not whole:
                return None
            self._told, self._at = {}, None
            text = "no due slot is missing any more, and every job waits for its next one"
            return Alarm(Said.CLEARED, text, {"slots_missing": 0, "jobs": []})
        news = len(known) < len(found)
        self._told = known
        if self._at is not None and now - self._at < (TOGETHER if news else REMIND):
            return None
        self._told = {job: f.wrong for job, f in found.items()}
        self._at = now
        return _raised(found, now)


def _raised(found: Mapping[JobId, Finding], now: datetime) -> Alarm:
    slots = sum(f.slots for f in found.values())
    wrong = Counter(f.wrong for f in found.values())
    late = lateness(found, now)
    said = []
    if wrong[Wrong.MISSING]:
        said.append(
            f"{_many(slots, 'slot')} of {_many(wrong[Wrong.MISSING], 'job')} neither launched nor"
            f" skipped, the oldest due {late:.0f} s ago"
        )
    if wrong[Wrong.ADRIFT]:
        said.append(f"{_many(wrong[Wrong.ADRIFT], 'job')} not waiting for the next slot")
    if wrong[Wrong.UNREADABLE]:
        said.append(f"{_many(wrong[Wrong.UNREADABLE], 'job')} unreadable to the watchdog")
    first = sorted(found.values(), key=lambda f: (f.due_at or now, f.job))[:SHOWN]
    data = {
        "slots_missing": slots,
        "late_seconds": round(late, 3),
        "jobs_missing": wrong[Wrong.MISSING],
        "jobs_adrift": wrong[Wrong.ADRIFT],
        "jobs_unreadable": wrong[Wrong.UNREADABLE],
        "jobs": [finding_document(f) for f in first],
    }
    return Alarm(Said.RAISED, "; ".join(said), data)


def lateness(found: Mapping[JobId, Finding], now: datetime) -> float:
    """Seconds since the oldest missing slot was due; 0 where none is missing."""
    dues = [f.due_at for f in found.values() if f.wrong is Wrong.MISSING and f.due_at is not None]
    return max(0.0, (now - min(dues)).total_seconds()) if dues else 0.0


def finding_document(f: Finding) -> dict[str, Any]:
    """A job with which something is wrong."""
    return {
        "tenant": str(f.tenant),
        "id": str(f.job),
        "name": f.name,
        "wrong": f.wrong.value,
        "slots": f.slots,
        "due_at": instant_text(f.due_at),
        "next_run_at": instant_text(f.next_run_at),
        "error": f.error,
    }


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
