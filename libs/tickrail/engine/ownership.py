"""One owner for each partition: the protocol, as one loop body.

A scheduler process is a member while its lease lives. Member key and owner keys lie under that
lease. Entering makes a new identity (name and random incarnation), so no later life of the process
can be taken for an earlier one. The rules of who takes what are in placement.py, the steps of
taking and giving up in takeover.py.

Taking a partition: the owner key is created where there is none; its create_revision, with the
installation's generation above it, is the epoch; the fence row in PostgreSQL is raised to the
epoch; only then does `owned()` show the partition. A claim whose outcome is unknown is settled by
the next snapshot. An epoch that is not above the highest one stored before the claim means that the
coordination service lost history: nothing is claimed and `status().refused` says what to do.

Acting: only while the trust window (core/lease.py) is open, looked at by each call of `owned()`.
When it ends, when the lease has ended, or when an owner key is gone or not this member's,
everything is dropped at once and the process enters again as a new member. An answer to a renewal
that comes after the window does not open it again.

Giving up: the partition leaves `owned()` first, the key is deleted (if it is still the one created
at our revision) when no turn of the owner's loops that saw the partition is still open. So the next
owner's raise of the fence never waits for a transaction of ours.

Being a member: the member key is there only while PostgreSQL answers and the local clock agrees
with the database's. Without it others are the rendezvous winners and the partitions are handed over
to them, if there are any. With a wrong clock `owned()` is empty besides. When the loops are dead
(`healthy()` is false) the lease is not renewed and the trust window ends.

Crash gaps: after the claim, before the raise: the key dies with the lease, the fence is unchanged.
After the raise: the epoch stays, the next owner's is higher. During a hand-over: a key not yet
deleted dies with the lease.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports_ownership import (
    Coordinator,
    DropReason,
    FenceStore,
    LeaseLostError,
    Snapshot,
)
from tickrail.engine.database_probe import DatabaseProbe
from tickrail.engine.membership import RETRY_SECONDS, Membership
from tickrail.engine.outage import Outage
from tickrail.engine.ownership_log import OwnershipLog
from tickrail.engine.ownership_state import (
    NOTHING,
    OwnershipResult,
    OwnershipSettings,
    OwnershipStatus,
    Session,
    State,
)
from tickrail.engine.placement import Rules, Seen, place, wanted
from tickrail.engine.takeover import REST_SECONDS, TURN_LIMIT_SECONDS, Takeover

__all__ = ["Ownership", "OwnershipResult", "OwnershipSettings", "OwnershipStatus"]

_LOG = structlog.get_logger()
_AGAIN_SECONDS = 0.1
_KEEP_TTLS = 10


class Ownership:
    """The partitions that this process may act for. One per scheduler process.

    `owned()`, `trusted()`, `turn()`, `dropped()`, `status()` may be called from any thread;
    `run_once()` and `renew_once()` are two loop bodies for a thread each (`run_once()` renews too
    when a renewal is due, so that one thread, or a test, can do with it alone).

    Args:
        settings: the numbers.
        coordinator: etcd, or its double.
        store: the fence in PostgreSQL, or its double.
        clock: the clock.
        healthy: whether the owner's loops turn; asked before each renewal.
        wake: called from any thread when `run_once()` has something to do before its time.
        changed: called from any thread when `owned()` gained or lost partitions.
        rng: the source of incarnations and jitter.
    """

    def __init__(
        self,
        settings: OwnershipSettings,
        coordinator: Coordinator,
        store: FenceStore,
        clock: Clock,
        *,
        healthy: Callable[[], bool] = lambda: True,
        wake: Callable[[], None] = lambda: None,
        changed: Callable[[], None] = lambda: None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._clock = clock
        self._wake = wake
        self._changed = changed
        self._rng = rng or random.SystemRandom()
        self._rules = Rules(settings.partitions, settings.ttl, settings.quiet, settings.at_once)
        # _lock guards the state and is never held over a call to a server.
        self._lock = threading.RLock()
        self._turn_ended = threading.Condition(self._lock)
        self._running = threading.Lock()
        self._active: Mapping[Partition, Epoch] = NOTHING
        self._turns: dict[object, Mapping[Partition, Epoch]] = {}
        self._stopped = False
        self._log = OwnershipLog()
        self._etcd = Outage("etcd", clock, self._rng)
        self._database = DatabaseProbe(
            store,
            clock,
            Outage("PostgreSQL", clock, self._rng),
            every=settings.probe_every,
            tolerance=settings.clock_tolerance,
        )
        self._membership = Membership(
            settings,
            coordinator,
            self._database,
            clock,
            self._etcd,
            self._rng,
            lock=self._lock,
            healthy=healthy,
            publish=self._publish,
            ended=self._ended,
        )
        self._takeover = Takeover(
            coordinator,
            store,
            clock,
            lock=self._lock,
            between=self._between,
            publish=self._publish,
        )

    # -- what the owner's loops use ------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The installation's generation as last read."""
        return self._database.generation

    def owned(self) -> Mapping[Partition, Epoch]:
        """The partitions this process may act for at this moment, with their epochs.

        Look at it before each transaction and each batch of publishes: it is empty as soon as the
        trust window has ended or the clock is known to be wrong.
        """
        with self._lock:
            return self._active if self.trusted() else NOTHING

    def trusted(self) -> bool:
        """Whether this process may act for what it owns at this moment."""
        return self._membership.trusted()

    @contextmanager
    def turn(self) -> Iterator[Mapping[Partition, Epoch]]:
        """One iteration of an owner's loop: gives `owned()` and holds up hand-overs of these.

        A partition given up during the turn leaves `owned()` at once, but its key is deleted only
        after the turn (or after 3 s). Turns of several loops may overlap.
        """
        token = object()
        with self._lock:
            owned = self.owned()
            self._turns[token] = owned
        try:
            yield owned
        finally:
            with self._lock:
                del self._turns[token]
                self._turn_ended.notify_all()
                session = self._session
                leaving = session is not None and State.LEAVING in session.states()
            if leaving:
                self._wake()

    def dropped(self, partition: Partition, reason: DropReason, epoch: Epoch | None = None) -> None:
        """A loop found the fence of a partition not equal to the epoch: stop using it.

        Higher: the partition is given up. Lower: it is taken again with the same epoch, the claim
        sequence having been moved on.

        Args:
            partition: the partition.
            reason: how the stored epoch compares to the loop's.
            epoch: the epoch the loop had; a report about an earlier one is ignored.
        """
        with self._lock:
            session = self._session
            held = session.held.get(partition) if session is not None else None
            if session is None or held is None or held.state is not State.OWNED:
                return
            if epoch not in {None, held.epoch}:
                return
            if reason is DropReason.FENCE_LOWER:
                held.state, held.lost_raise = State.CLAIMED, True
            else:
                now = self._clock.monotonic()
                session.leave(partition, now)
                session.rests[partition] = now + REST_SECONDS
            self._publish()
        _LOG.warning("partition fenced", partition=partition, reason=reason, epoch=held.epoch)
        self._changed()
        self._wake()

    def status(self) -> OwnershipStatus:
        """The present state."""
        with self._lock:
            session = self._session
            seen = session.seen if session else Seen()
            now = self._clock.monotonic()
            return OwnershipStatus(
                identity=session.identity if session else "",
                trusted=self.trusted(),
                owned=self.owned(),
                lease_remaining=session.window.remaining(now) if session else 0.0,
                members=dict(seen.members),
                unowned=len(seen.free_since) if seen.any else None,
                drained=self._settings.name in seen.drains,
                drains_ignored=seen.drains_ignored,
                refused=self._takeover.refused,
                clock_skew=self._database.clock_skew,
            )

    @property
    def database_answered_at(self) -> float:
        """The monotonic reading at which PostgreSQL was there for certain, as far as was looked."""
        return self._database.answered_at

    def unreachable(self) -> Mapping[str, str]:
        """What keeps this process from an owner's work: servers away, a wrong clock."""
        problems = self._database.troubles()
        if self._etcd.ongoing:
            problems["etcd"] = "does not answer"
        return problems

    # -- the loop bodies -----------------------------------------------------------------------

    def renew_once(self) -> float:
        """Renew the lease if that is due; the seconds until it wants to be called again."""
        return self._membership.renew_once()

    def run_once(self) -> OwnershipResult:
        """Look at the servers, enter, observe, claim, raise fences, hand over."""
        with self._running:
            before = frozenset(self.owned())
            next_in = self._settings.list_every if self._stopped else self._step()
            after = frozenset(self.owned())
            next_in = min(next_in, self._log.look(after, self._clock.monotonic()))
        result = OwnershipResult(after - before, before - after, next_in)
        if result.gained or result.lost:
            self._changed()
        return result

    def stop(self, grace: float = TURN_LIMIT_SECONDS) -> None:
        """Leave in good order: owner keys deleted, lease revoked. Then `run_once()` does nothing.

        `owned()` is empty from the first moment. Turns still open are waited for, for `grace`
        seconds of real time at most. With etcd away the lease is left to end by itself.
        """
        with self._lock:
            session = self._session
            if session is not None:
                for partition in session.held:
                    session.leave(partition, self._clock.monotonic())
                self._publish()
        self._changed()
        with self._running:
            self._stopped = True
            with self._turn_ended:
                session = self._session
                self._turn_ended.wait_for(lambda: not any(self._turns.values()), timeout=grace)
            if session is not None:
                self._membership.leave(session)

    # -- steps of run_once ---------------------------------------------------------------------

    def _step(self) -> float:
        self._membership.goes_on()
        self._database.look()
        session = self._session
        if session is not None and session.generation != self._database.generation:
            self._membership.lose(session, "the installation's generation was raised")
        self.renew_once()
        try:
            session = self._session or self._membership.enter()
            if session is None:
                return self._soon(self._settings.list_every)
            self._membership.keep_key(session)
            if not self._observe(session):
                return _AGAIN_SECONDS
            return self._act(session)
        except LeaseLostError:
            self._membership.lose(self._session, "the lease has ended")
            return _AGAIN_SECONDS
        except UnavailableError as error:
            return min(self._etcd.failed(error), self._soon(self._settings.list_every))

    def _observe(self, session: Session) -> bool:
        """Take in the truth; False when the session is over."""
        snapshot = self._coordinator.snapshot()
        self._etcd.answered()
        now = self._clock.monotonic()
        before = session.seen
        session.seen = before.after(snapshot, self._settings.partitions, now)
        was_present, session.present = session.present, session.identity in snapshot.members
        self._log.members(session.seen.present)
        self._say_drains(before, session.seen)
        lost = self._takeover.reconcile(session, snapshot)
        if lost is not None:
            reason = f"the owner key of partition {lost} is gone or another's"
            if was_present and not _lives(session.lease, snapshot):
                reason = "the lease has ended"
            self._membership.lose(session, reason)
        return self._session is session

    def _say_drains(self, before: Seen, seen: Seen) -> None:
        name = self._settings.name
        if (name in seen.drains) != (name in before.drains):
            _LOG.info("drained" if name in seen.drains else "drain ended", name=name)
        if seen.drains_ignored and not before.drains_ignored:
            _LOG.warning("drains are ignored: every member is drained", drained=sorted(seen.drains))

    def _act(self, session: Session) -> float:
        now = self._clock.monotonic()
        seen = session.seen
        self._look_at_given(session, now)
        with self._lock:
            held = [p for p, h in session.held.items() if h.state is not State.LEAVING]
            leaving = len(session.held) - len(held)
        todo = place(
            self._rules,
            seen,
            session.identity,
            held=held,
            moving=leaving + len(session.given),
            keep=self._keep(session, held, now),
            now=now,
        )
        with self._lock:
            for p in todo.hand_over:
                session.leave(p, now)
            self._publish()
        self._release(session)
        if session.present:
            self._takeover.claim(
                session, [p for p in todo.claim if session.rests.get(p, now) <= now]
            )
        for p in todo.stand_in & session.held.keys():
            session.kept[p] = (seen.members, now)
        self._takeover.raise_fences(session)
        self._release(session)
        return self._soon(min(todo.next_in, self._settings.list_every))

    def _look_at_given(self, session: Session, now: float) -> None:
        """Forget what was taken, and give no more to a member that let it lie for a lease's time.

        Otherwise a member that takes nothing would be handed everything, a few at a time.
        """
        seen, ttl = session.seen, self._settings.ttl
        for p, one in list(session.given.items()):
            if p in seen.free_since and now - one.at < ttl:
                continue
            del session.given[p]
            if p not in seen.free_since or one.to is None or one.to != wanted(seen.members, p):
                continue
            if one.to not in session.passed_over:
                _LOG.warning("member does not take what it is handed", member=one.to)
            session.passed_over[one.to] = now + _KEEP_TTLS * ttl
        session.passed_over = {m: at for m, at in session.passed_over.items() if at > now}

    def _keep(self, session: Session, held: list[Partition], now: float) -> list[Partition]:
        """Held partitions that another should have and that stay for a while all the same."""
        seen, age = session.seen, _KEEP_TTLS * self._settings.ttl
        keep = [
            p
            for p, (members, at) in session.kept.items()
            if members == seen.members and now - at < age
        ]
        # One that is to own nothing gives everything all the same.
        if session.passed_over and seen.members.get(session.identity):
            keep += [p for p in held if wanted(seen.members, p) in session.passed_over]
        return keep

    def _release(self, session: Session) -> None:
        with self._lock:
            in_use = {p for turn in self._turns.values() for p in turn}
        self._takeover.release(session, in_use)

    def _soon(self, seconds: float) -> float:
        """The seconds until the next call: the given ones, or less where something waits."""
        now = self._clock.monotonic()
        waits = [seconds * self._rng.uniform(0.9, 1.0), self._database.next_at - now]
        session = self._session
        if session is not None:
            waits += self._membership.waits(session, now)
            waits += [at - now for at in session.rests.values() if at > now]
            with self._lock:
                unsettled = session.states() - {State.OWNED}
            if unsettled or session.pending or session.strays:
                waits.append(RETRY_SECONDS)
        return max(0.0, min(waits))

    # -- what the parts call -------------------------------------------------------------------

    @property
    def _session(self) -> Session | None:
        return self._membership.session

    def _between(self, session: Session) -> bool:
        """Between two steps of a long run: renew if due; whether the session goes on."""
        self.renew_once()
        return self._session is session and self._membership.goes_on()

    def _ended(self) -> None:
        """A session was lost."""
        self._changed()
        self._wake()

    def _publish(self) -> None:
        """Make what `owned()` hands out."""
        with self._lock:
            self._active = self._session.owned() if self._session is not None else NOTHING


def _lives(lease: int, snapshot: Snapshot) -> bool:
    """Whether any key is left under a lease that had some."""
    leases = {m.lease for m in snapshot.members.values()}
    return lease in leases | {k.lease for k in snapshot.owners.values()}
