"""Dead letters on the memory tables: `core.ports_letters.LetterRecords`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from tests.support.memory_tables import LaunchRow, MemoryDatabase

from tickrail.core.dead_letters import LetterFilter, reason_of
from tickrail.core.ids import LaunchId
from tickrail.core.ports_letters import LetterPlace, LetterRecord, Redriven
from tickrail.core.records import LaunchRecord, Page, PageRequest, Position
from tickrail.core.states import State


class MemoryLetters:
    """Dead letters; tags are not known here."""

    def __init__(
        self, db: MemoryDatabase, record: Callable[[LaunchRow], LaunchRecord], now: datetime
    ) -> None:
        self._db = db
        self._record = record
        self._now = now

    def find(self, launch: LaunchId) -> LetterRecord | None:
        row = self._db.launches.get(launch)
        return None if row is None or row.dead_at is None else self._letter(row)

    def page(self, where: LetterFilter, page: PageRequest) -> Page[LetterRecord]:
        found = [(x.died_at, str(x.launch.id), x) for x in map(self._letter, self._rows(where))]
        found.sort(key=lambda one: one[:2], reverse=not page.ascending)
        if page.after is not None:
            edge = tuple(page.after)
            found = [x for x in found if (x[:2] > edge if page.ascending else x[:2] < edge)]
        items = [x for _, _, x in found[: page.limit]]
        more = len(found) > page.limit
        last = Position(items[-1].died_at, str(items[-1].launch.id)) if more else None
        return Page(items, last)

    def count(self, where: LetterFilter, until: datetime, most: int) -> int:
        return min(most, sum(x.dead_at <= until for x in self._rows(where) if x.dead_at))

    def batch(
        self, where: LetterFilter, until: datetime, after: LetterPlace | None, limit: int
    ) -> Sequence[LetterRecord]:
        found = [
            x
            for x in map(self._letter, self._rows(where))
            if x.died_at <= until and (after is None or (x.died_at, x.launch.id) > after)
        ]
        return sorted(found, key=lambda x: (x.died_at, x.launch.id))[:limit]

    def lock(self, launches: Sequence[LaunchId]) -> None:
        """One transaction runs at a time."""

    def redrive(self, seen: LaunchRecord, life: Redriven) -> LaunchRecord | None:
        row = self._db.launches.get(seen.id)
        if row is None or row.state not in (State.DEAD, State.ABANDONED):
            return None
        if row.redrive_count != seen.redrive_count:
            return None
        row.state, row.partition = life.state, life.partition
        row.attempt, row.failures = row.attempt + 1, 0
        row.redrive_count += 1
        row.due_at = self._now
        row.finished_at = row.dead_at = row.queued_at = None
        row.publications, row.cancel_requested, row.dlq_owed = 0, False, False
        if life.has_payload:
            row.payload = life.payload
        return self._record(row)

    def purge(self, launches: Sequence[LaunchId]) -> int:
        rows = [self._db.launches[x] for x in launches if x in self._db.launches]
        dead = [x for x in rows if x.dead_at is not None]
        for row in dead:
            row.dead_at = None
        return len(dead)

    def _letter(self, row: LaunchRow) -> LetterRecord:
        assert row.dead_at is not None
        return LetterRecord(self._record(row), row.dead_at, not row.dlq_owed)

    def _rows(self, where: LetterFilter) -> list[LaunchRow]:
        return [
            x
            for x in self._db.launches.values()
            if x.dead_at is not None
            and (not where.launches or x.id in where.launches)
            and where.job in (None, x.job_id)
            and where.queue in (None, x.queue)
            and (not where.states or x.state in where.states)
            and (not where.reasons or reason_of(x.state, x.result) in where.reasons)
            and (where.since is None or x.dead_at >= where.since)
            and (where.until is None or x.dead_at < where.until)
        ]
