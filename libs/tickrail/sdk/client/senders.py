"""The two ways to carry out a flow: blocking, and awaiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from tickrail.core.clock import Clock
from tickrail.sdk.client.flow import Flow, Lost, Pause, Policy, Reply, Send

T = TypeVar("T")


@dataclass(frozen=True)
class Conditions:
    """Under which conditions calls are made.

    Attributes:
        url: where the API is, without a slash at its end.
        clock: measures how long a call takes.
        policy: how long and how often a call is tried.
        headers: sent with every call.
    """

    url: str
    clock: Clock
    policy: Policy = field(default_factory=Policy)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # the key is there


class Sender(ABC):
    """What both ways have."""

    conditions: Conditions

    @abstractmethod
    def altered(self, conditions: Conditions) -> Self:
        """The same connections under other conditions."""


class BlockingSender(Sender):
    """Carries out flows in the calling thread; any number of threads may share it."""

    def run(self, flow: Flow[T]) -> T:
        """What a flow returns.

        Raises:
            ApiError: the API refused it.
            UnreachableError: no answer.
        """
        outcome: Reply | Lost | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Pause):
                self.pause(step.seconds)
                outcome = None
            else:
                outcome = self.request(step)

    @abstractmethod
    def request(self, step: Send) -> Reply | Lost:
        """Send a request."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class AsyncSender(Sender):
    """Carries out flows in an event loop; any number of its tasks may share it."""

    async def run(self, flow: Flow[T]) -> T:
        """What a flow returns.

        Raises:
            ApiError: the API refused it.
            UnreachableError: no answer.
        """
        outcome: Reply | Lost | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Pause):
                await self.pause(step.seconds)
                outcome = None
            else:
                outcome = await self.request(step)

    @abstractmethod
    async def request(self, step: Send) -> Reply | Lost:
        """Send a request."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""


def under(
    conditions: Conditions,
    *,
    headers: Mapping[str, str] | None = None,
    **policy: Any,  # noqa: ANN401 - members of Policy
) -> Conditions:
    """Conditions with these headers beside the others and these members of the policy.

    A member that is None stays as it is.
    """
    changes = {name: value for name, value in policy.items() if value is not None}
    return replace(
        conditions,
        headers={**conditions.headers, **(headers or {})},
        policy=replace(conditions.policy, **changes),
    )
