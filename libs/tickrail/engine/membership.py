"""Being a member: one session at a time, its lease, the trust window and the member key.

A session begins with a lease's grant under an identity that was never used, and ends with the trust
window, with the lease, or by `lose`. Whoever acts asks `trusted` first. The protocol as a whole is
in ownership.py.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import UnavailableError
from tickrail.core.lease import TrustWindow
from tickrail.core.ports_ownership import Coordinator, Member
from tickrail.engine.database_probe import DatabaseProbe
from tickrail.engine.outage import Outage
from tickrail.engine.ownership_state import OwnershipSettings, Session

RETRY_SECONDS = 0.2
_IDLE_SECONDS = 1.0
_STANDSTILL_SECONDS = 3.0
"""So much later than a renewal was due, and nobody has looked: the process stood still."""
_LOG = structlog.get_logger()


class Membership:
    """The session of this process.

    `renew_once()` may run beside everything else; `enter`, `keep_key` and `leave` belong to the
    thread of `Ownership.run_once()`.

    Args:
        settings: the numbers.
        coordinator: leases and member keys.
        database: whether PostgreSQL answers and the clock is right.
        clock: the clock.
        etcd: says when etcd goes and comes.
        rng: the source of incarnations.
        lock: guards the session; never held over a call to a server.
        healthy: whether the owner's loops turn; asked before each renewal.
        publish: makes what `owned()` shows; called under the lock when the session has ended.
        ended: called after a session was lost.
    """

    def __init__(  # noqa: PLR0913 - made in one place, from parts of `Ownership`
        self,
        settings: OwnershipSettings,
        coordinator: Coordinator,
        database: DatabaseProbe,
        clock: Clock,
        etcd: Outage,
        rng: random.Random,
        *,
        lock: threading.RLock,
        healthy: Callable[[], bool],
        publish: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._database = database
        self._clock = clock
        self._etcd = etcd
        self._rng = rng
        self._lock = lock
        self._healthy = healthy
        self._publish = publish
        self._ended = ended
        self._renewing = threading.Lock()
        self._old_lease: int | None = None
        self._renew_at = float("-inf")
        self._starved = False
        self._looked_at: float | None = None
        self._stood_still = float("-inf"), 0.0  # noticed when, for how long
        self.session: Session | None = None
        """The present session; None between two."""

    def trusted(self) -> bool:
        """Whether this process may act at this moment for what it owns."""
        with self._lock:
            session = self.session
            return (
                session is not None
                and self._database.clock_right
                and session.window.valid(self._clock.monotonic())
            )

    def enter(self) -> Session | None:
        """Become a member: a lease and a new identity. None when the process may not be one.

        Raises:
            UnavailableError: the coordinator does not answer.
        """
        if not self._able() or not self._healthy():
            return None
        if self._old_lease is not None:
            self._coordinator.revoke(self._old_lease)
            self._old_lease = None
        sent = self._clock.monotonic()
        grant = self._coordinator.grant(self._settings.ttl)
        window = TrustWindow(min(grant.ttl, self._settings.ttl), self._settings.margin)
        session = Session(
            identity=f"{self._settings.name}-{self._rng.getrandbits(32):08x}",
            lease=grant.id,
            generation=self._database.generation,
            window=window.renewed(sent),
            since=self._clock.now(),
        )
        with self._lock:
            self.session = session
            self._renew_at = sent + self._settings.renew_every
        _LOG.info("entered", member=session.identity, generation=session.generation)
        return session

    def keep_key(self, session: Session) -> None:
        """The member key is there exactly while this process can do an owner's work.

        Raises:
            UnavailableError: the coordinator does not answer.
            LeaseLostError: the lease has ended.
        """
        able = self._able()
        if able and not session.present:
            member = Member(
                session.identity, self._settings.name, self._settings.weight, since=session.since
            )
            self._coordinator.put_member(member, session.lease)
            session.present = True
        elif session.present and not able:
            self._coordinator.remove_member(session.identity)
            session.present = False
            _LOG.warning("no member until PostgreSQL and the clock are right again")

    def renew_once(self) -> float:
        """Renew the lease if that is due; the seconds until it wants to be called again."""
        self._look()
        if not self._renewing.acquire(blocking=False):
            return RETRY_SECONDS
        try:
            return self._renew()
        finally:
            self._renewing.release()

    def goes_on(self) -> bool:
        """Drop everything if the trust window is over; whether there still is a session."""
        self._look()
        session = self.session
        if session is not None and not session.window.valid(self._clock.monotonic()):
            self.lose(session, "the trust window ended without a renewal")
        return self.session is not None

    def lose(self, session: Session | None, reason: str) -> None:
        """Drop everything and be no member; the next step enters anew."""
        with self._lock:
            if session is None or self.session is not session:
                return
            had = len(session.owned())
            self.session = None
            self._old_lease = session.lease
            self._publish()
            noticed, stood = self._stood_still
        said = {"member": session.identity, "reason": reason, "partitions": had}
        if session.window.sent_at is not None and noticed > session.window.sent_at:
            said["process_stood_still_seconds"] = round(stood, 1)
        _LOG.warning("ownership lost", **said)
        self._ended()

    def leave(self, session: Session) -> None:
        """Leave in good order; the member key first, so that others are the winners at once.

        With etcd away the lease is left to end by itself.
        """
        try:
            self._coordinator.remove_member(session.identity)
            for partition, held in session.held.items():
                self._coordinator.release(partition, held.create_revision)
            self._coordinator.revoke(session.lease)
        except UnavailableError as error:
            _LOG.warning("left without etcd; the lease ends by itself", error=str(error))
        with self._lock:
            self.session = None
            self._publish()
        _LOG.info("left", member=session.identity)

    def waits(self, session: Session, now: float) -> list[float]:
        """The seconds until the next renewal is due and until the trust window ends."""
        return [max(self._renew_at - now, RETRY_SECONDS), session.window.remaining(now)]

    def _look(self) -> None:
        """Notice that the process stood still, so that its log does not blame the servers."""
        with self._lock:
            now, before = self._clock.monotonic(), self._looked_at
            self._looked_at = now
            stood = 0.0 if before is None else now - before
            if stood > self._settings.renew_every + _STANDSTILL_SECONDS:
                self._stood_still = now, stood

    def _able(self) -> bool:
        """Whether this process can do an owner's work."""
        return self._database.up and self._database.clock_right

    def _renew(self) -> float:
        session, sent = self.session, self._clock.monotonic()
        if session is None:
            return min(_IDLE_SECONDS, self._settings.renew_every)
        if sent < self._renew_at:
            return self._renew_at - sent
        healthy = self._healthy()
        if not healthy and not self._starved:
            _LOG.error("the owner's loops do not turn; the lease is not renewed")
        self._starved = not healthy
        if not healthy:
            return RETRY_SECONDS
        try:
            left = self._coordinator.renew(session.lease)
        except UnavailableError as error:
            wait = self._etcd.failed(error)
            self._renew_at = self._clock.monotonic() + wait
            return wait
        self._etcd.answered()
        with self._lock:
            now = self._clock.monotonic()
            renewed = left > 0 and self.session is session and session.window.valid(now)
            if renewed:
                session.window = session.window.renewed(sent)
                self._renew_at = sent + self._settings.renew_every
        if left <= 0:
            self.lose(session, "the lease has ended")
        elif not renewed:
            self.goes_on()
        return max(0.0, self._renew_at - self._clock.monotonic())
