"""Messages that wait for one of an executor's few places.

A worker claims only what can start now. Commands and the tasks that need a thread have fewer places
than a worker has runs; claimed beyond them, a launch would wait under a claim: not started, and yet
given up as uncertain when its worker dies. So their messages wait here, unclaimed, and those of
other kinds go past them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from tickrail.core.execution import Bounded, Executor
from tickrail.core.ids import JobId
from tickrail.core.ports_worker import TargetName

_MOST_JOBS = 10_000
TASK = "task"


class OfAJob(Protocol):
    """What waits."""

    @property
    def job(self) -> JobId:
        """The job of its launch."""
        ...


T = TypeVar("T", bound=OfAJob)


class Places(Generic[T]):
    """Sorts what may be claimed from what waits for a place. One thread."""

    def __init__(
        self,
        executors: Sequence[Executor],
        targets: Callable[[Collection[JobId], Collection[str]], Mapping[JobId, TargetName]],
    ) -> None:
        """Nothing waits.

        Args:
            executors: of this worker.
            targets: the targets of those of some jobs that have one of some kinds, as the database
                has them.
        """
        # By what it has: a failpoint may stand in front of it.
        bounded = [cast("Bounded", e) for e in executors if hasattr(e, "free_places")]
        self._bounded = {kind: e for e in bounded for kind in e.kinds}
        self._targets = targets
        self._needs: OrderedDict[JobId, str] = OrderedDict()  # a kind, or empty: no place needed
        self._lines: dict[str, deque[T]] = {kind: deque() for kind in self._bounded}
        self._room: dict[str, int] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[T]:
        """All that wait."""
        for line in self._lines.values():
            yield from line

    @property
    def ready(self) -> bool:
        """Whether something waits for which there is a place."""
        return any(line and self._bounded[k].free_places > 0 for k, line in self._lines.items())

    def learn(self, items: Collection[T]) -> None:
        """Know what the jobs of these need.

        Raises:
            UnavailableError: the database does not answer.
        """
        if not self._bounded:
            return
        # One by one: a set less a dictionary's keys would go through all the keys.
        unknown = {x.job for x in items if x.job not in self._needs}
        if not unknown:
            return
        found = self._targets(unknown, self._bounded)
        for job in unknown:
            self.note(job, found.get(job))

    def note(self, job: JobId, target: TargetName | None) -> None:
        """Remember what a job's target is; None: none that needs a place."""
        if not self._bounded:
            return
        executor = None if target is None else self._bounded.get(target.kind)
        needs = target is not None and executor is not None and executor.needs_place(target.name)
        self._needs[job] = target.kind if target is not None and needs else ""
        self._needs.move_to_end(job)
        if len(self._needs) > _MOST_JOBS:
            self._needs.popitem(last=False)

    def take(self, count: int) -> list[T]:
        """At most `count` of those that waited and have a place now. Begins a turn."""
        self._room = {kind: max(0, e.free_places) for kind, e in self._bounded.items()}
        chosen: list[T] = []
        for kind, line in self._lines.items():
            while line and self._room[kind] > 0 and len(chosen) < count:
                self._room[kind] -= 1
                chosen.append(line.popleft())
        return chosen

    def sort(self, items: Iterable[T]) -> list[T]:
        """Those that may be claimed in this turn; the rest waits behind what waits already.

        `learn` was told of them.
        """
        chosen: list[T] = []
        for item in items:
            kind = self._needs.get(item.job, "")
            if not kind:
                chosen.append(item)
            elif self._room.get(kind, 0) > 0 and not self._lines[kind]:
                self._room[kind] -= 1
                chosen.append(item)
            else:
                self._lines[kind].append(item)
        return chosen

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop the others."""
        for kind, line in self._lines.items():
            self._lines[kind] = deque(x for x in line if wanted(x))


def target_name(target: Mapping[str, Any]) -> TargetName:
    """What a target's document is."""
    kind = next(iter(target), "")
    return TargetName(kind, str(target[kind].get("name", "")) if kind == TASK else "")
