"""Names looked up for calls on one event loop, a tenant's few at a time.

A name whose servers do not answer blocks a thread of the system's resolver for half a minute,
long after the call has given up. So look-ups have threads of their own, and one tenant with many
such names holds a few of them, not all.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from uuid import UUID

from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy

_THREADS = 64
_PER_TENANT = 4


class Question(NamedTuple):
    """Who asks for the addresses of which host, for calls to which port under which policy."""

    tenant: UUID
    host: str
    port: int
    policy: EgressPolicy


class _Asked:
    """A question under way."""

    __slots__ = ("begun", "task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[list[str]] | None = None
        self.waiting = 0
        self.begun = False


class _Turns:
    """The look-ups that a tenant has at a time."""

    __slots__ = ("free", "users")

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(_PER_TENANT)
        self.users = 0


class Lookups:
    """One look-up serves all of a tenant's calls that ask the same at the same time."""

    def __init__(self, guard: EgressGuard) -> None:
        """No name is asked for. The guard keeps answers for a moment."""
        self._guard = guard
        self._threads = ThreadPoolExecutor(_THREADS, "lookups")
        self._asked: dict[Question, _Asked] = {}
        self._turns: dict[UUID, _Turns] = {}

    async def get(self, question: Question) -> list[str]:
        """The addresses, all of them allowed.

        Raises:
            RefusedError: one of them is not allowed.
            UnresolvedError: there is none.
        """
        asked = self._asked.get(question)
        if asked is None or asked.task is None:
            asked = self._asked[question] = _Asked()
            asked.task = asyncio.create_task(self._ask(question, asked))
            asked.task.add_done_callback(_heard)
        asked.waiting += 1
        try:
            return await asyncio.shield(asked.task)
        finally:
            asked.waiting -= 1
            # What has a thread goes on until the resolver is done; what waits for one need not.
            if not asked.waiting and not asked.begun:
                self._forget(question, asked)
                asked.task.cancel()

    def close(self) -> None:
        """Begin no look-up any more, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, question: Question, asked: _Asked) -> list[str]:
        turns = self._turns.setdefault(question.tenant, _Turns())
        turns.users += 1
        try:
            async with turns.free:
                asked.begun = True
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads,
                    self._guard.lookup,
                    question.host,
                    question.port,
                    question.policy,
                )
        finally:
            self._forget(question, asked)
            turns.users -= 1
            if not turns.users:
                del self._turns[question.tenant]

    def _forget(self, question: Question, asked: _Asked) -> None:
        if self._asked.get(question) is asked:
            del self._asked[question]


def _heard(task: asyncio.Task[list[str]]) -> None:
    """Whoever asked may have gone: an error nobody waits for is none to complain about."""
    if not task.cancelled():
        task.exception()
