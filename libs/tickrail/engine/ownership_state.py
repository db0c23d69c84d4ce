"""The values of ownership: settings, a session and what it holds, results, status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from types import MappingProxyType

from tickrail.core.errors import SettingsError
from tickrail.core.ids import Epoch, Partition
from tickrail.core.lease import TrustWindow
from tickrail.core.ports_ownership import OwnerKey
from tickrail.engine.placement import Members, Seen

NOTHING: Mapping[Partition, Epoch] = MappingProxyType({})


@dataclass(frozen=True)
class OwnershipSettings:
    """The numbers of the protocol; durations in seconds.

    Attributes:
        name: what the operator calls this process.
        partitions: P of the installation.
        ttl: time to live of the lease.
        renew_every: time between two renewals.
        margin: how much before the lease's end this member stops.
        quiet: how long the members must be the same before a partition with a live owner moves.
        list_every: time between two full reads when no change wakes the loop.
        at_once: how many partitions a member hands over at the same time.
        weight: this member's share against the others'; 0 takes none.
        clock_tolerance: how far the local clock may be off the database's.
        probe_every: time between two looks at PostgreSQL.
    """

    name: str
    partitions: int
    ttl: int = 10
    renew_every: float = 3.0
    margin: float = 1.0
    quiet: float = 2.0
    list_every: float = 5.0
    at_once: int = 4
    weight: float = 1.0
    clock_tolerance: float = 1.0
    probe_every: float = 3.0

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise SettingsError(f"partitions is {self.partitions}; it must be at least 1")
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise SettingsError(f"weight is {self.weight}; it must be a number of at least 0")
        if self.renew_every <= 0 or self.margin < 0:
            raise SettingsError("renew_every must be above 0 and margin at least 0")
        if 2 * self.renew_every + self.margin > self.ttl:
            raise SettingsError(
                f"ttl is {self.ttl} s; it must hold two renewals and the margin "
                f"(2 x {self.renew_every:g} s + {self.margin:g} s)"
            )


class State(Enum):
    """How far this member is with a partition whose owner key it made."""

    CLAIMED = auto()  # the key is ours, the fence not yet raised
    OWNED = auto()
    LEAVING = auto()  # no longer in owned(); the key goes when no turn uses it


@dataclass
class Held:
    """An owner key of ours."""

    create_revision: int
    epoch: Epoch
    state: State = State.CLAIMED
    lost_raise: bool = False
    failed_raises: int = 0
    leaving_since: float = 0.0


@dataclass(frozen=True)
class Given:
    """A partition handed over: when, and who was to take it then."""

    at: float
    to: str | None


@dataclass
class Session:
    """One membership: from a lease's grant to its end. Nothing in it outlives it.

    `held` is changed under the lock of `Ownership`; the memories below it belong to the thread of
    `run_once()`.
    """

    identity: str
    lease: int
    generation: int
    window: TrustWindow
    since: datetime
    present: bool = False
    held: dict[Partition, Held] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    pending: dict[Partition, Epoch] = field(default_factory=dict)
    """Claims of unknown outcome -> the highest epoch stored before the claim."""
    strays: dict[Partition, int] = field(default_factory=dict)
    """Keys of ours that must go, with their create_revision."""
    given: dict[Partition, Given] = field(default_factory=dict)
    """Partitions handed over; until somebody has taken them."""
    passed_over: dict[str, float] = field(default_factory=dict)
    """Members that did not take what was handed to them -> until when they are given no more."""
    rests: dict[Partition, float] = field(default_factory=dict)
    """Partitions not to be claimed again before this reading."""
    kept: dict[Partition, tuple[Members, float]] = field(default_factory=dict)
    """Partitions taken in another's stead -> the members at that time, and when."""

    def ours(self, key: OwnerKey) -> bool:
        """Whether this session made the key."""
        return key.identity == self.identity and key.lease == self.lease

    def states(self) -> set[State]:
        """The states of all that is held."""
        return {h.state for h in self.held.values()}

    def leave(self, partition: Partition, now: float) -> None:
        """Begin to give a partition up."""
        held = self.held[partition]
        if held.state is not State.LEAVING:
            held.state, held.leaving_since = State.LEAVING, now
            self.kept.pop(partition, None)

    def owned(self) -> Mapping[Partition, Epoch]:
        """The partitions that are taken in full, with their epochs; a copy that cannot change."""
        return MappingProxyType(
            {p: h.epoch for p, h in self.held.items() if h.state is State.OWNED}
        )


@dataclass(frozen=True)
class OwnershipResult:
    """What one `run_once()` changed, and the seconds until it wants to be called again."""

    gained: frozenset[Partition]
    lost: frozenset[Partition]
    next_in: float


@dataclass(frozen=True)
class OwnershipStatus:
    """The present state, for readiness, metrics and operators.

    Attributes:
        identity: this life of the process; empty when it is no member.
        trusted: whether this process may act for what it owns.
        owned: partition -> epoch.
        lease_remaining: seconds left of the trust window.
        members: identity -> weight that counts (0 for a drained one), as last seen.
        unowned: partitions without an owner, as last seen; None where this process is no member, or
            has seen nothing yet.
        drained: whether the operator drained this member.
        drains_ignored: whether drains have no effect, since every member is drained.
        refused: why nothing is claimed, in words for the operator; empty when all is well.
        clock_skew: seconds the local clock is ahead of the database's, as last measured.
    """

    identity: str
    trusted: bool
    owned: Mapping[Partition, Epoch]
    lease_remaining: float
    members: Mapping[str, float]
    unowned: int | None
    drained: bool
    drains_ignored: bool
    refused: str
    clock_skew: float
