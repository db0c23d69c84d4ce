"""The message bus as the relay and the intake see it: ports, values and errors.

The docstrings are the contract; `tests/contract/test_bus_port.py` holds both adapters (Kafka in
`bus/`, memory in the tests) to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from tickrail.core.errors import TickrailError

Headers = Sequence[tuple[str, bytes]]


@dataclass(eq=False)
class BusError(TickrailError):
    """The message bus does not answer as it should.

    `fatal`: this producer or consumer is of no more use; make a new one. `permanent`: the same
    message can never be accepted. `topic`: the topic concerned, where it is one.
    """

    fatal: bool = False
    topic: str = ""

    code: ClassVar[str] = "bus_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    permanent: ClassVar[bool] = False


@dataclass(eq=False)
class MessageTooLargeError(BusError):
    """The message is larger than the message bus takes."""

    code: ClassVar[str] = "too_large"
    retryable: ClassVar[bool] = False
    permanent: ClassVar[bool] = True


@dataclass(eq=False)
class UnknownTopicError(BusError):
    """The topic, or this partition of it, does not exist; its queue backs off."""

    code: ClassVar[str] = "topic_missing"


@dataclass(eq=False)
class BusDeniedError(BusError):
    """The message bus refuses these credentials, or they may not do this."""

    code: ClassVar[str] = "bus_denied"


class Delivery(NamedTuple):
    """What became of one published message.

    With an error it is not known whether the message is in the topic, except for a permanent one
    and UnknownTopicError (it is not). `offset` and `partition`, where it landed, are -1 with an
    error.
    """

    token: object
    error: BusError | None
    offset: int
    partition: int = -1


class Publisher(Protocol):
    """Publishes messages; owned by one thread."""

    def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Headers | None,
        token: object,
    ) -> bool:
        """Hand a message over; the partition -1 leaves the choice to the key.

        True: taken, and exactly one Delivery with this token will come from `poll`, in which every
        failure is reported, also one that is known at once. False: the local queue is full; the
        message was not taken: call `poll`, slow down, try again. Never blocks.
        """
        ...

    def poll(self, timeout: float) -> list[Delivery]:
        """The reports that have come, waiting at most `timeout` seconds for the first."""
        ...

    @property
    def outstanding(self) -> int:
        """Messages taken whose Delivery was not yet handed out."""
        ...

    @property
    def trouble(self) -> BusError | None:
        """Why no message goes out, if something is known to keep them all; from any thread."""
        ...

    def flush(self, timeout: float) -> list[Delivery]:
        """Wait up to `timeout` seconds for everything outstanding, and return its reports."""
        ...

    def close(self, timeout: float) -> list[Delivery]:
        """Flush, then give up what is still outstanding (reported as failed)."""
        ...


class Record(NamedTuple):
    """A message that was read.

    `generation` names the assignment of the partition under which it was read; it goes back with
    the offset, so that nothing is committed for an assignment that is over. `traceparent`: its
    header of this name.
    """

    topic: str
    partition: int
    offset: int
    value: bytes
    generation: int
    traceparent: str | None = None


class Assignment(NamedTuple):
    """A partition that this consumer holds, since the assignment `generation`."""

    topic: str
    partition: int
    generation: int


class Position(NamedTuple):
    """The next offset to read of a partition, under an assignment."""

    topic: str
    partition: int
    generation: int
    offset: int


class RebalanceListener(Protocol):
    """Hears about partitions; called inside `poll` and `close`, on the thread that owns them."""

    def assigned(self, partitions: Sequence[Assignment]) -> None:
        """New partitions; none of them is paused."""
        ...

    def revoked(self, partitions: Sequence[Assignment]) -> Iterable[Position]:
        """These go; what is returned is committed before they do. Must not wait for long."""
        ...

    def lost(self, partitions: Sequence[Assignment]) -> None:
        """These are gone already (this member was thrown out); nothing can be committed."""
        ...


class Consumer(Protocol):
    """Reads messages as a member of a group; one thread makes every call.

    A group that has no position starts at the earliest message. Records of one partition come in
    the order of their offsets; offsets may leave gaps. Where they begin again, since the topic was
    deleted and made anew, so does the assignment: `lost`, then `assigned`. Polling must go on while
    work runs: it is what keeps the membership, also when every partition is paused.
    """

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group for these topics; once, before the first `poll`."""
        ...

    def poll(self, max_messages: int, timeout: float) -> list[Record]:
        """What has come, waiting at most `timeout` seconds for the first record.

        Raises:
            BusError: fatal; close this consumer and make a new one. What passes by itself (broker
                away, topic missing) is not raised but told by `trouble`.
        """
        ...

    def pause(self, partitions: Iterable[Assignment]) -> None:
        """Read no more from these for now; those of an assignment that is over are ignored."""
        ...

    def resume(self, partitions: Iterable[Assignment]) -> None:
        """Read again from where it stopped."""
        ...

    def commit(self, positions: Iterable[Position]) -> None:
        """Store positions, soon and without waiting; a later one wins, a lost one does no harm.

        Positions of an assignment that is over are dropped.
        """
        ...

    @property
    def assignments(self) -> Sequence[Assignment]:
        """The partitions held now."""
        ...

    @property
    def trouble(self) -> BusError | None:
        """What keeps records from coming, if something is known to; for readiness."""
        ...

    def close(self) -> None:
        """Tell the listener `revoked` for all, commit what it returns, leave the group."""
        ...
