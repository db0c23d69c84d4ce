"""Metrics as the loops see them: by name, from one table (`runtime/metrics.py`)."""

from __future__ import annotations

from typing import Protocol


class Metrics(Protocol):
    """Counts, observes, sets. Cheap, never raises for a value, never blocks.

    Names are those of the table without the prefix `tickrail_`; a name or label that is not in the
    table is a bug and raises KeyError.
    """

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        ...

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        ...


class NullMetrics:
    """Forgets everything."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""
