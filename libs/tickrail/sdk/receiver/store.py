"""Idempotency keys of a receiver: the port of the stores, its values, and the one rule.

A key is what one launch is called at all its attempts (`Idempotency-Key`). A fence is the number of
the attempt's claim (`Fencing-Token`): higher at each later start of the launch. A delivery asks to
begin, and then runs, or gets the answer that is stored, or is turned away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

NO_FENCE = 0
"""Stands for the fence of a sender that gives none; every fence that is given is above it."""
MOMENT = 1.0
"""Seconds after which to ask again where it is not known when the answer will be there."""

State = Literal["started", "done", "free"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answered.

    Attributes:
        status: the HTTP status.
        headers: those that are kept, names in lower case.
        body: empty where it was larger than what is kept.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Started:
    """The delivery holds the key: run the handler, then `finish` or `abandon`."""


@dataclass(frozen=True, slots=True)
class Done:
    """The effect has taken place: answer this again and run nothing."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another delivery runs, or ran and died; ask again in so many seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class Fenced:
    """A delivery with a higher fence came before: this one is too late for ever."""

    highest: int


Begun = Started | Done | InProgress | Fenced


class FencedError(Exception):
    """A delivery with a higher fence came before; the effect must not take place."""

    def __init__(self, highest: int) -> None:
        super().__init__(f"a delivery with the higher fencing token {highest} came before")
        self.highest = highest


class IdempotencyStore(Protocol):
    """Remembers keys. Safe to use from several threads and, if it is shared, several processes.

    Each call is atomic: of two that begin one key at the same moment, one is `Started`. What a call
    raises means that nothing is known of its effect; nothing runs after a `begin` that raised.
    `tickrail.sdk.receiver.contract` tests a store of your own.
    """

    def begin(self, key: str, fence: int | None, lease: float) -> Begun:
        """Ask to run for a key.

        A fence below the highest that this key has seen is `Fenced`. Else a key that is done gives
        its answer; one that is new or was abandoned is `Started`. One that another delivery holds
        is `InProgress`, until that one's lease is over: then a higher fence takes it (`Started`),
        an equal one does not, since it is the same attempt, delivered twice. Without a fence
        the end of the lease is enough.

        Args:
            key: names the launch.
            fence: of this delivery, above 0; None where the sender gives none.
            lease: seconds for which the key is held unless it is finished or abandoned before.
        """
        ...

    def finish(self, key: str, fence: int | None, answer: Answer) -> bool:
        """Keep the answer for later deliveries; False where the key is no longer this one's."""
        ...

    def abandon(self, key: str, fence: int | None) -> bool:
        """Free a key whose effect did not take place; False where it is no longer this one's."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """What a store knows of a key.

    Attributes:
        fence: the highest that was seen.
        holder: the fence of the delivery that holds the key or held it last.
        state: `started`, `done`, or `free` after an abandon.
        lease_left: seconds until the holder's lease is over.
        answer: the answer, where it is done.
    """

    fence: int
    holder: int
    state: State
    lease_left: float = 0.0
    answer: Answer | None = None


def decide(record: Record, fence: int) -> Begun:
    """What `begin` says of a key that is known; `Started`: let it take the key."""
    if fence < record.fence:
        return Fenced(record.fence)
    if record.state == "free":
        return Started()
    if record.state == "done":
        return Done(record.answer or Answer(200))
    if record.lease_left > 0:
        return InProgress(max(record.lease_left, MOMENT))
    return Started() if fence > record.holder or fence == NO_FENCE else InProgress(MOMENT)


def decide_effect(record: Record, fence: int) -> Started | Done:
    """The same for an effect that commits together with its key, and so needs no lease.

    The holder itself goes on, also where a higher fence has asked meanwhile and was told to wait.

    Raises:
        FencedError: a higher fence came before.
    """
    if record.state == "started" and record.holder == fence:
        return Started()
    if fence < record.fence:
        raise FencedError(record.fence)
    return Done(record.answer or Answer(200)) if record.state == "done" else Started()


def number(fence: int | None) -> int:
    """The fence as stores keep it.

    Raises:
        ValueError: it is not above 0.
    """
    if fence is None:
        return NO_FENCE
    if fence <= NO_FENCE:
        raise ValueError(f"a fencing token is above 0, not {fence}")
    return fence
