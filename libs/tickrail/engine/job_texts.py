"""What runs need of their jobs' definitions, read once for many runs."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tickrail.core.durations import parse_duration
from tickrail.core.ids import JobId
from tickrail.core.ports_worker import Claimed
from tickrail.engine.active import JobText

_WAKING = frozenset({"buffer_one", "buffer_all", "cancel_other", "skip"})


class JobTexts:
    """The definitions used last, bounded in number and in bytes of their text."""

    def __init__(self, most: int = 10_000, most_bytes: int = 32 << 20) -> None:
        """Nothing is known yet.

        Args:
            most: definitions kept.
            most_bytes: and characters of their JSON text.
        """
        self._most = most
        self._most_bytes = most_bytes
        self._known: OrderedDict[tuple[JobId, int], tuple[JobText, int]] = OrderedDict()
        self._bytes = 0

    def of(self, c: Claimed) -> JobText:
        """The definition of a claimed launch's job, in its version.

        Raises:
            ValueError, KeyError, TypeError: it cannot be read.
        """
        key = (c.job, c.job_version)
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known[0]
        doc = json.loads(c.definition)
        text = JobText(
            name=doc["name"],
            target=doc["target"],
            payload=doc.get("payload"),
            timeout=parse_duration(doc["timeout"]).total_seconds(),
            retry=doc["retry"],
            wakes=doc["overlap"] in _WAKING or _measured_from_end(doc["schedule"]),
        )
        self._known[key] = (text, len(c.definition))
        self._bytes += len(c.definition)
        while len(self._known) > self._most or self._bytes > self._most_bytes:
            _, (_, size) = self._known.popitem(last=False)
            self._bytes -= size
        return text


def _measured_from_end(schedule: Mapping[str, Any] | None) -> bool:
    """Whether the next slot of a canonical schedule is measured from the end of a launch."""
    return schedule is not None and schedule.get("measured_from") == "completion"
