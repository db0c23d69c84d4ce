"""Ports of ownership: the coordination service (etcd) and the fence in PostgreSQL.

The docstrings are the contracts; `tests/contract/test_ownership_port.py` runs them on every
adapter. Every call may raise `UnavailableError`: no answer within the call's deadline. A change
whose call raised it may or may not have happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from tickrail.core.errors import ConflictError
from tickrail.core.ids import Epoch, Partition


class LeaseLostError(ConflictError):
    """The lease has ended; what was kept under it is gone."""

    code = "lease_lost"


class RaiseOutcome(StrEnum):
    """What became of an attempt to raise a partition's epoch."""

    RAISED = "raised"
    """The stored epoch was lower and is now the given one."""
    ALREADY = "already"
    """The stored epoch is the given one."""
    HIGHER = "higher"
    """The stored epoch is higher; nothing was changed."""


class DropReason(StrEnum):
    """Why one of an owner's loops may not go on with a partition."""

    FENCE_HIGHER = "fence_higher"
    """PostgreSQL holds a higher epoch: another owner took the partition."""
    FENCE_LOWER = "fence_lower"
    """PostgreSQL holds a lower epoch: it lost this owner's raise (a failover, a restore)."""


class FenceStore(Protocol):
    """The fence rows `partitions(partition, epoch, owner)` and the installation's row."""

    def raise_epoch(self, partition: Partition, epoch: Epoch, owner: str) -> RaiseOutcome:
        """Store the epoch and the owner's name where the stored epoch is lower.

        Waits for the row's lock for at most 2 s (`lock_timeout`), then `UnavailableError`.

        Raises:
            SetupError: there is no row for this partition.
        """
        ...

    def highest_epoch(self) -> Epoch:
        """The highest epoch of any partition; 0 when none was ever raised."""
        ...

    def generation(self) -> int:
        """The installation's generation, raised by the documented command after etcd lost data."""
        ...

    def database_now(self) -> datetime:
        """The present instant by PostgreSQL's clock (`clock_timestamp()`), aware, in UTC."""
        ...

    def advance_claims(self) -> None:
        """Move the claim sequence on, past any claim number that may have been lost.

        Called before a partition is taken again whose stored epoch was found to be lower.
        """
        ...


@dataclass(frozen=True)
class LeaseGrant:
    """A lease: its id and the time to live that the server granted, in seconds."""

    id: int
    ttl: float


@dataclass(frozen=True)
class Member:
    """A scheduler that is present.

    Attributes:
        identity: name and incarnation, never used twice.
        name: what the operator calls the process.
        weight: its share of the partitions against the others'; 0 gets none.
        lease: the lease that the member key lives under; 0 in what is put.
        since: when it became a member, by its own clock; None where that is not known.
    """

    identity: str
    name: str
    weight: float = 1.0
    lease: int = 0
    since: datetime | None = None


@dataclass(frozen=True)
class Drain:
    """An operator's word that the members of a name are to own nothing.

    It outlasts the members: one that comes back under the name is drained too.

    Attributes:
        name: the members' name.
        since: when it was asked for; None where that is not known.
        by: who asked.
    """

    name: str
    since: datetime | None = None
    by: str = ""


@dataclass(frozen=True)
class OwnerKey:
    """The owner key of a partition as the coordination service holds it.

    `create_revision` is the revision at which this key came to be: it grows with each new owner
    of any partition, and is the low part of the epoch.
    """

    partition: Partition
    identity: str
    lease: int
    create_revision: int


@dataclass(frozen=True)
class Snapshot:
    """All members, owner keys and drains at one revision.

    Attributes:
        revision: the revision.
        members: by identity.
        owners: by partition.
        drains: by name, of members that are present and others.
    """

    revision: int
    members: Mapping[str, Member] = field(default_factory=dict)
    owners: Mapping[Partition, OwnerKey] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)


class Coordinator(Protocol):
    """Leases, member keys and owner keys of one installation. Safe to use from several threads."""

    def grant(self, ttl: int) -> LeaseGrant:
        """A new lease of this many seconds; the server may grant a longer one."""
        ...

    def renew(self, lease: int) -> float:
        """Start the lease's time to live again; the seconds it now has, 0 when it has ended."""
        ...

    def revoke(self, lease: int) -> None:
        """End the lease and with it every key under it; one that has ended already is no error."""
        ...

    def put_member(self, member: Member, lease: int) -> None:
        """Make or change the member's key, under the lease.

        Raises:
            LeaseLostError: the lease has ended.
        """
        ...

    def remove_member(self, identity: str) -> None:
        """Delete the member's key; none there is no error."""
        ...

    def claim(self, partition: Partition, identity: str, lease: int) -> OwnerKey:
        """Make the owner key, under the lease, where there is none; the key as it then is.

        The caller owns it when the answer carries the caller's identity and lease; this includes
        a key that an earlier claim made whose outcome was unknown.

        Raises:
            LeaseLostError: the lease has ended.
        """
        ...

    def release(self, partition: Partition, create_revision: int) -> bool:
        """Delete the owner key if it is the one created at this revision; whether it was."""
        ...

    def snapshot(self) -> Snapshot:
        """All members, owner keys and drains, as the whole service agrees on at one revision."""
        ...

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from another thread, soon after any member, owner key or drain changed.

        Only a hint: calls may be missing, doubled or late. Once per coordinator.
        """
        ...

    def close(self) -> None:
        """End watch and connections. Leases are left to end by themselves."""
        ...


class Directory(Protocol):
    """What operators see of an installation's ownership, and drains. Safe from several threads."""

    def snapshot(self) -> Snapshot:
        """As of `Coordinator`."""
        ...

    def lease_remaining(self, lease: int) -> float:
        """The seconds until the lease ends unless it is renewed; 0 when it has ended."""
        ...

    def put_drain(self, drain: Drain) -> Drain:
        """Drain the members of a name, where that was not done; the drain as it then is."""
        ...

    def remove_drain(self, name: str) -> bool:
        """End the drain of a name; whether there was one."""
        ...
