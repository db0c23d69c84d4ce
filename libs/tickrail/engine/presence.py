"""A worker tells that it is there: for people, and for `explain`. No claim depends on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tickrail.core.errors import UnavailableError
from tickrail.core.ports_reports import ReportStore, WorkerInfo

EVERY = 5.0
"""Seconds between two signs of life."""
FORGET_AFTER = timedelta(seconds=60)
"""A worker not heard of for so long is taken off the list, by any other."""
ABSENT_AFTER = timedelta(seconds=20)
"""A worker not heard of for so long is not counted on."""


class Presence:
    """The sign of life of one worker."""

    def __init__(self, store: ReportStore, info: Callable[[], WorkerInfo]) -> None:
        """Nothing told yet.

        Args:
            store: where workers report.
            info: the worker as it is now.
        """
        self._store = store
        self._info = info

    def run_once(self) -> float:
        """Tell that it is there; seconds until the next time.

        Raises:
            UnavailableError: the database does not answer.
        """
        self._store.present(self._info(), FORGET_AFTER)
        return EVERY

    def leave(self) -> None:
        """Tell that it is gone, if the database takes it; else it is forgotten by itself."""
        try:
            self._store.left(self._info().id)
        except UnavailableError:
            return
