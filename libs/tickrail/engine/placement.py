"""What a member does next about each partition: a decision made from a snapshot, no I/O.

- A partition without an owner is taken at once by its rendezvous winner. After each further
  2 x TTL without an owner the next in the order takes it. An owner key under no lease is no owner.
- A partition with a live owner moves only when the members have been the same for the quiet time,
  and it is the owner that hands it over, a few at a time.
- A drained member counts with weight 0: it takes nothing, and when the members have been quiet it
  hands over all it has at once, as one that stops does. When no member that may take anything is
  left, drains are ignored: an unowned partition is worse than one in the wrong place.
- A process that is no member though it owns something (its PostgreSQL is away, its clock wrong)
  does no work: it hands over all at once, too, when the others have been quiet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import OwnerKey, Snapshot
from tickrail.core.sharding import ranking

Members = Mapping[str, float]


@dataclass(frozen=True)
class Rules:
    """The numbers of the rules: seconds, and how many partitions move at once."""

    partitions: int
    ttl: float
    quiet: float
    at_once: int


@dataclass(frozen=True)
class Seen:
    """What a member remembers of the snapshots before: since when things are as they are.

    Attributes:
        members: identity -> the weight that counts.
        members_since: since when the same members with the same weights of their own are present.
        free_since: partitions without an owner key that lives, and since when.
        leaseless: owner keys that are under no lease, so that no death would ever end them: such a
            partition has no owner, and who claims it deletes the key.
        present: identity -> its own weight, drained or not.
        drains: names of drained members, present or not.
        drains_ignored: whether drains have no effect.
    """

    members: Members = field(default_factory=dict)
    members_since: float = float("-inf")
    free_since: Mapping[Partition, float] = field(default_factory=dict)
    leaseless: Mapping[Partition, OwnerKey] = field(default_factory=dict)
    present: Members = field(default_factory=dict)
    drains: frozenset[str] = frozenset()
    drains_ignored: bool = False

    @property
    def any(self) -> bool:
        """Whether there was a snapshot."""
        return self.members_since > float("-inf")

    def after(self, snapshot: Snapshot, partitions: int, now: float) -> Seen:
        """The memory after this snapshot, taken at the monotonic reading `now`."""
        counting, ignored = weights(snapshot)
        present = {m.identity: m.weight for m in snapshot.members.values()}
        same = present == dict(self.present)
        leaseless = {p: key for p, key in snapshot.owners.items() if not key.lease}
        return Seen(
            members=counting,
            members_since=self.members_since if same else now,
            free_since={
                p: self.free_since.get(p, now)
                for p in map(Partition, range(partitions))
                if p not in snapshot.owners or p in leaseless
            },
            leaseless=leaseless,
            present=present,
            drains=frozenset(snapshot.drains),
            drains_ignored=ignored,
        )


@dataclass(frozen=True)
class Placement:
    """What to do now, and when the answer may change without a new snapshot.

    Attributes:
        claim: free partitions to take now.
        stand_in: those of `claim` that another should have had.
        hand_over: held partitions to give up now, for another to take.
        unowned: how many partitions have no owner.
        next_in: seconds until a timer of the rules runs out; infinity when none runs.
    """

    claim: tuple[Partition, ...] = ()
    stand_in: frozenset[Partition] = frozenset()
    hand_over: tuple[Partition, ...] = ()
    unowned: int = 0
    next_in: float = float("inf")


def weights(snapshot: Snapshot) -> tuple[Members, bool]:
    """Identity -> the weight that counts, 0 for a drained member; whether drains are ignored."""
    own = {m.identity: m.weight for m in snapshot.members.values()}
    left = {
        m.identity: 0.0 if m.name in snapshot.drains else m.weight
        for m in snapshot.members.values()
    }
    ignored = any(w > 0 for w in own.values()) and not any(w > 0 for w in left.values())
    return (own if ignored else left), ignored


def wanted(members: Members, partition: Partition) -> str | None:
    """The member that should own a partition; None where no weight is above 0."""
    order = ranking(members, partition)
    return order[0] if order else None


def place(
    rules: Rules,
    seen: Seen,
    me: str,
    held: Collection[Partition],
    moving: int,
    keep: Collection[Partition],
    now: float,
) -> Placement:
    """Decide.

    Args:
        rules: the numbers.
        seen: the memory, the present snapshot included.
        me: this member's identity.
        held: partitions whose owner key this member holds and is not giving up.
        moving: how many partitions this member is giving up that nobody has taken yet.
        keep: held partitions that stay where they are though another should have them.
        now: the monotonic reading.
    """
    claim: list[Partition] = []
    stand_in: set[Partition] = set()
    waits: list[float] = []
    for p, since in seen.free_since.items():
        order = ranking(seen.members, p)
        if me not in order:
            continue
        wait = since + order.index(me) * 2 * rules.ttl - now
        if wait > 0:
            waits.append(wait)
            continue
        claim.append(p)
        if order[0] != me:
            stand_in.add(p)
    others = [p for p in held if p not in keep and wanted(seen.members, p) not in {me, None}]
    hand_over: list[Partition] = []
    quiet_in = seen.members_since + rules.quiet - now
    if others and quiet_in > 0:
        waits.append(quiet_in)
    elif others:
        room = max(0, rules.at_once - moving)
        hand_over = sorted(others)[: room if seen.members.get(me) else len(others)]
    return Placement(
        claim=tuple(claim),
        stand_in=frozenset(stand_in),
        hand_over=tuple(hand_over),
        unowned=len(seen.free_since),
        next_in=min(waits, default=float("inf")),
    )
