"""PostgreSQL and etcd in a simulation: the memory adapters, with what real servers do besides.

Both can be put back to an older state; PostgreSQL holds fence rows while an owner decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.simulation.eras import Era, Window
from tests.simulation.kernel import Kernel, Process, SimClock
from tests.support.memory_api import MemoryApi
from tests.support.memory_coord import MemoryEtcd
from tests.support.memory_store import MemoryOwnerStore
from tests.support.memory_tables import CLAIMS_STEP, MemoryDatabase
from tests.support.memory_worker import MemoryWorkerStore
from tests.support.memory_zone_data import MemoryZoneData

from tickrail.core.errors import UnavailableError
from tickrail.core.ids import JobId, Partition
from tickrail.core.ports import LostClaim, Owned, Swept
from tickrail.core.ports_backfill import Backfilled, BackfillPlanner
from tickrail.core.ports_worker import ClaimAnswer, ClaimRequest
from tickrail.core.verdict import Verdict

PER_SECOND, EPOCH = 64_000, 1000.0
TRANSACTION = 2.0
"""So long the database bears with an owner's transaction that does nothing, in seconds."""
_ROWS = ("jobs", "launches", "backfills")
_VALUES = ("skips", "attempts", "calendars", "suspended", "eras")


class SimDatabase(MemoryDatabase):
    """PostgreSQL."""

    def __init__(self, kernel: Kernel, clock: SimClock, partitions: int) -> None:
        super().__init__(clock, partitions)  # type: ignore[arg-type]
        self.kernel = kernel
        self.api = MemoryApi(self)
        self.zones = MemoryZoneData(self)
        self.fence_locks: dict[Partition, object] = {}
        self.fence.locked = self.fence_locks  # type: ignore[assignment]
        self.restores = 0
        self.eras: dict[JobId, tuple[Era, ...]] = {}
        self.rest: Window = ("", "")
        self.fence.advance_claims = lambda: self.move_claims(CLAIMS_STEP)  # type: ignore[method-assign]

    @contextmanager
    def transaction(self, name: str) -> Iterator[datetime]:
        del name
        yield self.clock.now()

    def move_claims(self, step: int = 0) -> None:
        """Claim numbers follow the clock."""
        now = int((EPOCH + self.kernel.now + self.clock.ahead) * PER_SECOND)
        self._claims = now if self._claims < now else self._claims + step

    def save(self) -> dict[str, Any]:
        """All tables as they are."""
        tables: dict[str, Any] = {
            name: {k: copy(row) for k, row in getattr(self, name).items()} for name in _ROWS
        }
        tables |= {name: copy(getattr(self, name)) for name in _VALUES}
        tables["extra"] = {k: copy(e) for k, e in self.api.extra.items()}
        tables["fence"] = (dict(self.fence.epochs), dict(self.fence.owners),
                           self.fence.stored_generation, self.fence.claims_advanced)  # fmt: skip
        tables["claims"] = self._claims
        tables["zones"] = dict(self.zones.stored)
        tables["rest"] = self.rest
        return tables

    def restore(self, tables: dict[str, Any]) -> None:
        """What was committed after `save` is lost."""
        self.put_back(tables)
        self.restores += 1

    def put_back(self, tables: dict[str, Any]) -> None:
        """The tables as `save` gave them, which must not be used again."""
        for name in (*_ROWS, *_VALUES):
            setattr(self, name, tables[name])
        self.api.extra = tables["extra"]
        f = self.fence
        f.epochs, f.owners, f.stored_generation, f.claims_advanced = tables["fence"]
        self._claims = tables["claims"]
        self.zones.stored = tables["zones"]
        self.rest = tables["rest"]


class SimOwnerStore(MemoryOwnerStore):
    """An owner's connection: while the reaper decides, the rows are not locked, the fence is."""

    def __init__(self, db: SimDatabase, process: Process) -> None:
        super().__init__(db)
        self._sim = db
        self._process = process

    def backfill(self, owned: Owned, limit: int, planner: BackfillPlanner) -> Backfilled:
        if not any(b.state == "running" for b in self._sim.backfills.values()):
            return Backfilled(self._sim.clock.now())
        return super().backfill(owned, limit, planner)

    def reap(self, owned: Owned, limit: int, decide: Callable[[LostClaim], Verdict]) -> Swept:
        decided = False

        def slowly(lost: LostClaim) -> Verdict:
            nonlocal decided
            verdict = decide(lost)
            if not decided:
                decided = True
                self.gap(owned, "decide")
            return verdict

        return super().reap(owned, limit, slowly)

    def gap(self, owned: Owned, call: str) -> None:
        """Time passes inside a transaction that has the fence rows."""
        db, kernel = self._sim, self._sim.kernel
        since, restores, mine = kernel.now, db.restores, object()

        def let_go() -> None:
            for p in [p for p, holder in db.fence_locks.items() if holder is mine]:
                del db.fence_locks[p]

        db.fence_locks.update(dict.fromkeys(owned, mine))
        kernel.at(since + TRANSACTION, let_go)
        try:
            kernel.before(self._process, call, "db")
        finally:
            let_go()
        if kernel.now - since > TRANSACTION or db.restores != restores:
            raise UnavailableError("the server has ended the transaction")


class SimWorkerStore(MemoryWorkerStore):
    """A worker's connections: a database that went back has ended them."""

    def __init__(self, db: SimDatabase) -> None:
        super().__init__(db)
        self._sim = db
        self._opened: int | None = None

    def claim(self, requests: Sequence[ClaimRequest], worker: str) -> ClaimAnswer:
        if self._opened != self._sim.restores:
            self._opened = self._sim.restores
            self._sim.move_claims()
        return super().claim(requests, worker)


class SimEtcd(MemoryEtcd):
    """etcd."""

    def save(self) -> tuple[Any, ...]:
        return (self.revision, dict(self.members), dict(self.owners), dict(self.leases),
                dict(self.drains))  # fmt: skip

    def put_back(self, state: tuple[Any, ...]) -> None:
        """An old snapshot: revisions go back, its leases begin again."""
        self.revision, self.members, self.owners, leases, self.drains = state
        now = self.clock.monotonic()
        self.leases = {i: replace(one, ends_at=now + one.ttl) for i, one in leases.items()}
        self.changed()
