"""Taking partitions and giving them up: owner keys and fences, for `Ownership`.

All functions of `Takeover` run in the thread of `Ownership.run_once()`; the lock guards what other
threads read, and is never held over a call to a server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.ids import GENERATION_SHIFT, Epoch, Partition, epoch_of
from tickrail.core.ports_ownership import Coordinator, FenceStore, RaiseOutcome, Snapshot
from tickrail.engine.generation import went_back
from tickrail.engine.ownership_state import Given, Held, Session, State
from tickrail.engine.placement import wanted

TURN_LIMIT_SECONDS = 3.0
"""For so long a turn of the owner's loops may hold up a hand-over; the fence makes it safe."""
REST_SECONDS = 1.0
"""For so long a partition is left alone after its fence was found higher."""
NO_ROW_REST_SECONDS = 5.0
"""For so long a partition is left alone after its fence could not be raised for want of a row."""
_SAY_AGAIN_SECONDS = 60.0
_FAILED_RAISES = 2
_LOG = structlog.get_logger()


class Takeover:
    """The steps.

    Args:
        coordinator: the owner keys.
        store: the fences.
        clock: the clock.
        lock: the lock of `Ownership`.
        between: called between two steps, so that renewals go on; whether the session goes on.
        publish: makes what `owned()` shows from the session.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        store: FenceStore,
        clock: Clock,
        *,
        lock: threading.RLock,
        between: Callable[[Session], bool],
        publish: Callable[[], None],
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._clock = clock
        self._lock = lock
        self._between = between
        self._publish = publish
        self._say_at: dict[Partition, float] = {}
        self.refused = ""
        """Why nothing is claimed, for the operator; empty when all is well."""

    def reconcile(self, session: Session, snapshot: Snapshot) -> Partition | None:
        """Compare what is held with the truth; a partition whose key is not ours, if any."""
        with self._lock:
            for partition, held in list(session.held.items()):
                key = snapshot.owners.get(partition)
                # A key that somebody put over ours keeps its create_revision.
                same = key is not None and key.create_revision == held.create_revision
                if same and key is not None and session.ours(key):
                    continue
                if held.state is not State.LEAVING:
                    return partition
                del session.held[partition]
            for partition, key in snapshot.owners.items():
                if not session.ours(key) or partition in session.held:
                    continue
                # A claim or a release of ours whose outcome was unknown.
                highest = session.pending.get(partition)
                epoch = epoch_of(session.generation, key.create_revision)
                if highest is not None and epoch > highest:
                    session.held[partition] = Held(key.create_revision, epoch)
                else:
                    session.strays[partition] = key.create_revision
        session.pending.clear()
        return None

    def claim(self, session: Session, partitions: Iterable[Partition]) -> None:
        """Make the owner keys of free partitions; others may be quicker.

        Raises:
            UnavailableError: the coordinator does not answer.
            LeaseLostError: the lease has ended.
        """
        wanted = list(partitions)
        if not wanted:
            return
        # Read before the claims: a claim made after this has a higher revision than any stored.
        try:
            highest = self._store.highest_epoch()
        except UnavailableError as error:
            _LOG.debug("epochs not read yet", error=str(error))
            return
        if self._went_back(session, self._coordinator.snapshot().revision + 1, highest):
            return
        for partition in wanted:
            if not self._between(session):
                return
            self._free(session, partition)
            session.pending[partition] = highest
            key = self._coordinator.claim(partition, session.identity, session.lease)
            del session.pending[partition]
            if not session.ours(key):
                continue
            if self._went_back(session, key.create_revision, highest):
                session.strays[partition] = key.create_revision
                return
            epoch = epoch_of(session.generation, key.create_revision)
            with self._lock:
                session.held[partition] = Held(key.create_revision, epoch)

    def raise_fences(self, session: Session) -> None:
        """Raise the fence of each claimed partition; what fails is tried again at the next call."""
        with self._lock:
            claimed = [(p, h) for p, h in session.held.items() if h.state is State.CLAIMED]
        claimed.sort(key=lambda c: c[1].failed_raises)
        failures = 0
        for partition, held in claimed:
            if not self._between(session):
                return
            try:
                if held.lost_raise:
                    self._store.advance_claims()
                    for _, other in claimed:
                        other.lost_raise = False
                outcome = self._store.raise_epoch(partition, held.epoch, session.identity)
            except UnavailableError as error:
                # A lock that a paused owner's transaction holds, or PostgreSQL away.
                held.failed_raises += 1
                failures += 1
                log = _LOG.warning if held.failed_raises == 1 else _LOG.debug
                log("fence not raised yet", partition=partition, error=str(error))
                if failures == _FAILED_RAISES:
                    return
                continue
            except SetupError as error:
                self._give_back(session, partition, error)
                continue
            with self._lock:
                if outcome is RaiseOutcome.HIGHER:
                    self._step_back(session, partition)
                elif held.state is State.CLAIMED:
                    held.state, held.failed_raises = State.OWNED, 0
                self._publish()

    def release(self, session: Session, in_use: Collection[Partition]) -> None:
        """Delete the keys of the partitions being given up that no turn uses any more.

        Raises:
            UnavailableError: the coordinator does not answer; the next snapshot tells.
        """
        now = self._clock.monotonic()
        with self._lock:
            ready = {
                p: h
                for p, h in session.held.items()
                if h.state is State.LEAVING
                and (p not in in_use or now - h.leaving_since >= TURN_LIMIT_SECONDS)
            }
        for partition, held in ready.items():
            self._coordinator.release(partition, held.create_revision)
            with self._lock:
                session.held.pop(partition, None)
            # One that rests was given up for its fence, not for another member.
            if session.rests.get(partition, held.leaving_since) <= held.leaving_since:
                to = wanted(session.seen.members, partition)
                session.given[partition] = Given(now, to)
        for partition, revision in list(session.strays.items()):
            self._coordinator.release(partition, revision)
            del session.strays[partition]

    def _free(self, session: Session, partition: Partition) -> None:
        """Delete an owner key that no lease will ever end: nobody keeps it."""
        key = session.seen.leaseless.get(partition)
        if key is not None and self._coordinator.release(partition, key.create_revision):
            _LOG.warning(
                "owner key without a lease deleted", partition=partition, member=key.identity
            )

    def _give_back(self, session: Session, partition: Partition, error: SetupError) -> None:
        """Without a fence row nobody can own it: without an owner key it counts as unowned."""
        now = self._clock.monotonic()
        with self._lock:
            session.leave(partition, now)
        session.rests[partition] = now + NO_ROW_REST_SECONDS
        if now >= self._say_at.get(partition, now):
            self._say_at[partition] = now + _SAY_AGAIN_SECONDS
            _LOG.error("partition cannot be owned", partition=partition, error=str(error))

    def _step_back(self, session: Session, partition: Partition) -> None:
        now = self._clock.monotonic()
        session.leave(partition, now)
        session.rests[partition] = now + REST_SECONDS
        _LOG.warning("a higher epoch is stored; given up", partition=partition)

    def _went_back(self, session: Session, revision: int, highest: Epoch) -> bool:
        """Whether etcd's revisions are not above the stored fences; says so once."""
        back = went_back(session.generation, revision, highest)
        if back and not self.refused:
            stored = highest & (1 << GENERATION_SHIFT) - 1
            self.refused = (
                f"etcd is at revision {revision}, but PostgreSQL holds an epoch made at revision "
                f"{stored} of generation {highest >> GENERATION_SHIFT} (this one is "
                f"{session.generation}): etcd was restored or replaced. No partition is claimed. "
                "Once etcd is the right one, run `tickrail system raise-generation`."
            )
            _LOG.error("claims refused", reason=self.refused)
        elif not back and self.refused:
            self.refused = ""
            _LOG.info("claims are possible again")
        return back
