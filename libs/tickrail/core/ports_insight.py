"""What the API reads to show a launch from inside: what its runs print, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tickrail.core.explain_facts import Facts
from tickrail.core.records import LaunchRecord


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The end of what an attempt printed; `size` bytes in all; `ended`: it prints no more."""

    attempt: int
    body: str
    size: int
    ended: bool
    updated_at: datetime


class InsightRecords(Protocol):
    """Launches of the transaction's tenant, seen from inside."""

    def log(self, launch: LaunchRecord, attempt: int) -> LogRecord | None:
        """What an attempt printed; None: nothing is known of it."""
        ...

    def facts(self, launch: LaunchRecord) -> Facts:
        """Where the launch stands, the owner of its partition aside."""
        ...
