"""What changed among the launches since the last look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

Launch = Mapping[str, Any]

ENDED = frozenset({"succeeded", "dead", "abandoned", "expired", "cancelled"})
_SHOWN = ENDED | {"running", "retrying"}
_LOOK_AT = 1000
_OPEN = 200
_ENDED_IN_A_ROW = 100
_REMEMBERED = 10_000
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """A launch that has started, failed for now, or ended."""

    launch: Launch
    state: str
    at: datetime | None
    """The instant of the change."""

    @property
    def ended(self) -> bool:
        """Whether the attempt is over."""
        return self.state != "running"


class Follower:
    """Finds changes by looking again and again.

    The newest launches are read each time until nothing new is to be expected behind; those that
    were open and are no longer among them are read one by one. The first look shows only what is
    under way. A launch that starts and ends between two looks is shown once, ended.

    Args:
        newest: the launches, the newest first.
        one: a launch by id; None where it is gone.
    """

    def __init__(
        self, newest: Callable[[], Iterator[Launch]], one: Callable[[str], Launch | None]
    ) -> None:
        self._newest = newest
        self._one = one
        self._seen: dict[str, tuple[str, int]] = {}
        self._since: datetime | None = None

    def poll(self) -> list[Change]:
        """The changes since the last look, in the order of their instants."""
        found = self._look()
        for launch in self._left_out(found):
            found[str(launch["id"])] = launch
        changes = [c for launch in found.values() if (c := self._change(launch)) is not None]
        if self._since is None:
            instants = [at for launch in found.values() if (at := _latest(launch)) is not None]
            self._since = max(instants, default=_LONG_AGO)
        self._remember(found)
        return sorted(changes, key=lambda c: c.at or _LONG_AGO)

    def _look(self) -> dict[str, Launch]:
        found: dict[str, Launch] = {}
        known = 0
        for launch in islice(self._newest(), _LOOK_AT):
            key = str(launch["id"])
            found[key] = launch
            same = launch["state"] in ENDED and self._seen.get(key) == _mark(launch)
            known = known + 1 if same else 0
            if known >= _ENDED_IN_A_ROW:
                break
        return found

    def _left_out(self, found: Mapping[str, Launch]) -> Iterator[Launch]:
        """Launches that were open and are too old to be among the newest."""
        open_before = [key for key, (state, _) in self._seen.items() if state not in ENDED]
        for key in [key for key in open_before if key not in found][:_OPEN]:
            launch = self._one(key)
            if launch is None:
                del self._seen[key]
            else:
                yield launch

    def _change(self, launch: Launch) -> Change | None:
        state, key = str(launch["state"]), str(launch["id"])
        if state not in _SHOWN or self._seen.get(key) == _mark(launch):
            return None
        at = _latest(launch)
        new = self._since is not None and at is not None and at > self._since
        if state != "running" and key not in self._seen and not new:
            return None  # was over before the first look
        return Change(launch, state, at)

    def _remember(self, found: Mapping[str, Launch]) -> None:
        for key, launch in found.items():
            self._seen.pop(key, None)  # to the end: the least recently seen go first
            self._seen[key] = _mark(launch)
        for key in list(self._seen)[: max(0, len(self._seen) - _REMEMBERED)]:
            del self._seen[key]


def _mark(launch: Launch) -> tuple[str, int]:
    return str(launch["state"]), int(launch.get("attempt") or 1)


def _latest(launch: Launch) -> datetime | None:
    """When it last changed, as far as the API tells."""
    for name in ("finished_at", "started_at", "created_at"):
        if launch.get(name):
            return datetime.fromisoformat(str(launch[name]))
    return None
