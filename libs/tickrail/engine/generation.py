"""Whether a new generation of epochs is needed: what the operator is told before it is begun."""

from __future__ import annotations

from dataclasses import dataclass

from tickrail.core.errors import UnavailableError
from tickrail.core.ids import GENERATION_SHIFT, Epoch, epoch_of
from tickrail.core.ports_ownership import Directory, FenceStore


def went_back(generation: int, revision: int, highest: Epoch) -> bool:
    """Whether an owner key created at this revision has an epoch that is not above the highest.

    Revisions only grow, so etcd was restored from an older state, or replaced, then.
    """
    return epoch_of(generation, revision) <= highest


@dataclass(frozen=True)
class History:
    """What PostgreSQL and etcd know of epochs.

    Attributes:
        generation: the present one.
        highest: the highest epoch stored.
        revision: etcd's revision; None where etcd does not answer.
        members: schedulers that are present in etcd.
        owned: partitions that have an owner there.
    """

    generation: int
    highest: Epoch
    revision: int | None
    members: int = 0
    owned: int = 0

    @property
    def needed(self) -> bool | None:
        """Whether no partition can be claimed without a new generation; None: not known."""
        if self.revision is None:
            return None
        return went_back(self.generation, self.revision + 1, self.highest)

    def words(self) -> str:
        """Both sides, for the operator."""
        stored = self.highest & (1 << GENERATION_SHIFT) - 1
        known = (
            f"PostgreSQL's highest epoch was made at revision {stored} of generation"
            f" {self.highest >> GENERATION_SHIFT}; the generation is {self.generation}."
        )
        if self.revision is None:
            return f"{known} etcd does not answer."
        return (
            f"{known} etcd is at revision {self.revision} and knows {self.members} members"
            f" and {self.owned} owned partitions."
        )


def look(store: FenceStore, directory: Directory) -> History:
    """Read both sides.

    Raises:
        UnavailableError: PostgreSQL does not answer.
        SetupError: it holds no installation.
    """
    generation, highest = store.generation(), store.highest_epoch()
    try:
        snapshot = directory.snapshot()
    except UnavailableError:
        return History(generation, highest, None)
    return History(
        generation, highest, snapshot.revision, len(snapshot.members), len(snapshot.owners)
    )
