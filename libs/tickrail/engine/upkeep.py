"""What is kept for a time and then removed: deleted jobs, the audit log, answers, ended records.

And what ends by itself and should not unnoticed: API keys in use.

Any number of schedulers may do so at once: a row that one of them holds is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

import structlog

from tickrail.core.aged import Aged
from tickrail.core.ports_metrics import Metrics, NullMetrics
from tickrail.engine.job_versions import KEPT

log = structlog.get_logger("tickrail.upkeep")

EVERY: Final = 300.0
"""Seconds between two looks when the last one found nothing more."""
SOON: Final = 1.0
"""And when it did: so that what was left to grow goes without taking the database for itself."""
BATCH: Final = 1000
"""Rows that one transaction removes at most."""
_DAY: Final = timedelta(days=1)
_AGES: Final[Mapping[Aged, timedelta]] = {
    Aged.ANSWERS: _DAY,
    Aged.OPERATOR_ANSWERS: _DAY,
    Aged.WINDOWS: 3 * _DAY,
    Aged.BUCKETS: 30 * _DAY,
}
"""What goes at an age of its own; all else goes with the history."""


SOON_ENDING: Final = timedelta(days=7)
"""So long before its end a key in use is counted; used within as long before, it is in use."""


class Records(Protocol):
    """What is removed. Each call is one transaction and answers how many rows it took."""

    def keys_expiring(self, within: timedelta) -> int:
        """Keys used within a time, not replaced, that end within as long a time; nothing goes."""
        ...

    def purge_jobs(self, older: timedelta, most: int) -> int:
        """Deleted jobs with their versions: those deleted so long ago that have no history left."""
        ...

    def purge_audit(self, older: timedelta, most: int) -> int:
        """Entries of the audit log, the oldest first."""
        ...

    def purge(self, what: Aged, older: timedelta, most: int) -> int:
        """Records that are older, the oldest first."""
        ...


class Upkeep:
    """The loop's body."""

    def __init__(
        self,
        records: Records,
        audit: timedelta,
        history: timedelta,
        metrics: Metrics | None = None,
    ) -> None:
        """Put it together.

        Args:
            records: what is removed.
            audit: how long entries of the audit log are kept.
            history: how long launches are kept, and what goes with them.
            metrics: told how many keys in use end soon.
        """
        self._records = records
        self._metrics = metrics or NullMetrics()
        self._kinds: dict[str, Callable[[], int]] = {
            "jobs": lambda: records.purge_jobs(KEPT, BATCH),
            "audit_entries": lambda: records.purge_audit(audit, BATCH),
        }
        for what in Aged:
            older = _AGES.get(what, history)
            self._kinds[what.value] = partial(records.purge, what, older, BATCH)
        self._left: frozenset[str] = frozenset()
        """The kinds of which the last turn took a whole batch: there are more of them."""
        self._turns = 0
        """Those since all kinds were looked at."""

    def run_once(self) -> float:
        """One batch of each kind that there is more of, or of all; the seconds until the next.

        Raises:
            UnavailableError: the database does not answer.
        """
        if not self._left or self._turns * SOON >= EVERY:
            self._left, self._turns = frozenset(self._kinds), 0
            self._metrics.gauge("api_keys_expiring", self._records.keys_expiring(SOON_ENDING))
        self._turns += 1
        removed = {name: self._kinds[name]() for name in self._kinds if name in self._left}
        self._left = frozenset(name for name, count in removed.items() if count >= BATCH)
        if any(removed.values()):
            log.info("records_removed", **{name: n for name, n in removed.items() if n})
        return SOON if self._left else EVERY
