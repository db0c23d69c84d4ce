"""What operators see of members and partitions, and drains.

All of it is read from the coordination service when it is asked for. Nothing here decides who owns
what: a drain is a key that every member reads with its snapshot (placement.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tickrail.core.clock import Clock
from tickrail.core.errors import NotFoundError, UnavailableError
from tickrail.core.ids import Epoch, Partition, epoch_of
from tickrail.core.ports_ownership import Directory, Drain, OwnerKey, Snapshot
from tickrail.engine.placement import Members as Weights
from tickrail.engine.placement import wanted, weights

_READ_EVERY = 3.0
_NAMED = 20


class MemberState(StrEnum):
    """How a member stands to the work."""

    ACTIVE = "active"
    DRAINING = "draining"
    """Drained, and still the owner of partitions."""
    DRAINED = "drained"
    """Drained, and the owner of none."""
    DRAIN_IGNORED = "drain_ignored"
    """Drained, and so is every other that may own partitions: it owns its share all the same."""
    ABSENT = "absent"
    """A name that is drained and of which no member is present."""


class PartitionState(StrEnum):
    """How a partition stands to its owner."""

    OWNED = "owned"
    MOVING = "moving"
    """Owned, and another member should have it: it is handed over when the members are quiet."""
    UNOWNED = "unowned"
    """No member has its owner key, or the key is under no lease."""
    FENCE_BEHIND = "fence_behind"
    """The owner's epoch is not yet stored in PostgreSQL, or was lost there."""
    FENCE_AHEAD = "fence_ahead"
    """PostgreSQL holds a higher epoch than the owner's: the coordination service lost history."""


@dataclass(frozen=True)
class MemberView:
    """A member, or a drained name without one: then `identity` and what belongs to it is None."""

    name: str
    identity: str | None
    state: MemberState
    weight: float | None
    since: datetime | None
    lease_remaining: float | None
    partitions: int
    drain: Drain | None


@dataclass(frozen=True)
class PartitionView:
    """A partition: its owner by the coordination service, and both epochs.

    `stored` is the epoch in PostgreSQL, `claimed` that of the owner key. Where there is no owner
    `owner`, `name`, `claimed` and `lease_remaining` are None.
    """

    partition: Partition
    state: PartitionState
    owner: str | None
    name: str | None
    stored: Epoch
    claimed: Epoch | None
    lease_remaining: float | None


class MemberDirectory:
    """Members, partitions and drains for operators. Safe to use from several threads.

    Args:
        directory: the coordination service; None where this process was given none.
    """

    def __init__(self, directory: Directory | None) -> None:
        self._directory = directory

    def members(self) -> tuple[list[MemberView], bool]:
        """The members by name, drained names without one among them; whether drains are ignored.

        Raises:
            UnavailableError: etcd does not answer, or this process was given none.
        """
        directory = self._reached()
        snapshot = directory.snapshot()
        leases = _leases(directory, (m.lease for m in snapshot.members.values()))
        return _members(snapshot, leases), weights(snapshot)[1]

    def partitions(
        self, stored: Mapping[Partition, Epoch], generation: int
    ) -> dict[Partition, PartitionView]:
        """The partitions whose stored epochs are given.

        Raises:
            UnavailableError: as for `members`.
        """
        directory = self._reached()
        snapshot = directory.snapshot()
        keys = {p: snapshot.owners.get(p) for p in stored}
        leases = _leases(directory, (k.lease for k in keys.values() if k is not None))
        counting, _ = weights(snapshot)
        return {
            p: _partition(p, key, stored[p], generation, counting, snapshot, leases)
            for p, key in keys.items()
        }

    def find(self, named: str) -> str:
        """The name of the members that are called so: by their name or one's identity.

        Raises:
            NotFoundError: none is present and no drain has the name; says who is present.
            UnavailableError: as for `members`.
        """
        snapshot = self._reached().snapshot()
        member = snapshot.members.get(named)
        if member is not None:
            return member.name
        names = sorted({m.name for m in snapshot.members.values()})
        if named in names or named in snapshot.drains:
            return named
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        present = ", ".join(names[:_NAMED]) + more if names else "none"
        raise NotFoundError(f"No scheduler {named[:200]!r} is a member; present: {present}.")

    def drain(self, name: str, since: datetime, by: str) -> tuple[list[MemberView], bool]:
        """Have the members of a name own nothing; they, and whether drains are ignored.

        Raises:
            UnavailableError: as for `members`.
        """
        self._reached().put_drain(Drain(name, since, by))
        views, ignored = self.members()
        return [v for v in views if v.name == name], ignored

    def undrain(self, name: str) -> bool:
        """End the drain of a name; whether there was one.

        Raises:
            UnavailableError: as for `members`.
        """
        return self._reached().remove_drain(name)

    def _reached(self) -> Directory:
        if self._directory is None:
            raise UnavailableError(
                "This process was not told where etcd is: set TICKRAIL_ETCD_ENDPOINTS."
            )
        return self._directory


@dataclass(frozen=True)
class Counts:
    """How many members there are and how many partitions have no owner."""

    members: int
    unowned: int


class Census:
    """Counts for the metrics of a process that is no member; read at most every 3 s.

    Safe to use from several threads: one that comes while another reads gets what was read last.

    Args:
        directory: the coordination service.
        partitions: P of the installation.
        clock: the clock.
    """

    def __init__(self, directory: Directory, partitions: int, clock: Clock) -> None:
        self._directory = directory
        self._partitions = partitions
        self._clock = clock
        self._reading = threading.Lock()
        self._next_at = float("-inf")
        self._counts: Counts | None = None

    def read(self) -> Counts | None:
        """The counts; None where etcd does not answer."""
        if self._clock.monotonic() < self._next_at or not self._reading.acquire(blocking=False):
            return self._counts
        try:
            snapshot = self._directory.snapshot()
        except UnavailableError:
            self._counts = None
        else:
            owned = sum(
                0 <= p < self._partitions and key.lease != 0 for p, key in snapshot.owners.items()
            )
            self._counts = Counts(len(snapshot.members), self._partitions - owned)
        finally:
            self._next_at = self._clock.monotonic() + _READ_EVERY
            self._reading.release()
        return self._counts


def _leases(directory: Directory, leases: Iterable[int]) -> dict[int, float]:
    return {lease: directory.lease_remaining(lease) for lease in set(leases)}


def _members(snapshot: Snapshot, leases: Mapping[int, float]) -> list[MemberView]:
    ignored = weights(snapshot)[1]
    held: dict[str, int] = {}
    for key in snapshot.owners.values():
        held[key.identity] = held.get(key.identity, 0) + 1
    views = []
    for member in snapshot.members.values():
        drain, count = snapshot.drains.get(member.name), held.get(member.identity, 0)
        state = MemberState.ACTIVE
        if drain is not None:
            state = MemberState.DRAINING if count else MemberState.DRAINED
            if ignored and member.weight > 0:
                state = MemberState.DRAIN_IGNORED
        views.append(
            MemberView(
                member.name, member.identity, state, member.weight, member.since,
                leases[member.lease], count, drain,
            )
        )  # fmt: skip
    present = {m.name for m in snapshot.members.values()}
    views += [
        MemberView(name, None, MemberState.ABSENT, None, None, None, 0, drain)
        for name, drain in snapshot.drains.items()
        if name and name not in present  # a stray `drains/` is nobody's, and no route could end it
    ]
    return sorted(views, key=lambda v: (v.name, v.identity or ""))


def _partition(
    partition: Partition,
    key: OwnerKey | None,
    stored: Epoch,
    generation: int,
    counting: Weights,
    snapshot: Snapshot,
    leases: Mapping[int, float],
) -> PartitionView:
    if key is None or not key.lease:  # what no lease ends is nobody's
        return PartitionView(partition, PartitionState.UNOWNED, None, None, stored, None, None)
    claimed = epoch_of(generation, key.create_revision)
    state = PartitionState.OWNED
    if stored < claimed:
        state = PartitionState.FENCE_BEHIND
    elif stored > claimed:
        state = PartitionState.FENCE_AHEAD
    elif wanted(counting, partition) not in {key.identity, None}:
        state = PartitionState.MOVING
    member = snapshot.members.get(key.identity)
    # One that has stepped down keeps its owner keys until its lease ends.
    name = member.name if member is not None else key.identity.rpartition("-")[0]
    return PartitionView(partition, state, key.identity, name, stored, claimed, leases[key.lease])
