"""Circuit breakers: a receiver that fails again and again is left alone for a while.

Pure: instants are arguments. One circuit for each key; closed until `failures` calls in a row have
failed, then open for a time, then one call is let through as a probe. Its success closes the
circuit, its failure opens it again for twice as long.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

_WINDOW = 60.0
_LONGEST = 120.0
_PATIENCE = 300.0
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a circuit opens.

    Attributes:
        failures: so many in a row, none more than a minute after the one before; 0: never.
        open_seconds: for so long at first; doubled by each probe that fails, up to two minutes.
    """

    failures: int = 50
    open_seconds: float = 15.0


class Refusal(NamedTuple):
    """Why a call is not made: the circuit is open.

    `seconds` until a probe; `patient`: it has not been open for long (five minutes), so the call
    should only be put off. After that it should count as a failure, or what waits would pile up for
    ever behind a receiver that does not come back.
    """

    seconds: float
    patient: bool


@dataclass(slots=True)
class _Circuit:
    failures: int = 0
    last: float = 0.0
    since: float = 0.0
    until: float | None = None
    open_for: float = 0.0
    probing: bool = False


class Breaker:
    """The circuits. Used by one thread."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._circuits: dict[Hashable, _Circuit] = {}
        self.open = 0
        """Circuits that are open."""
        self.opened = 0
        """How often one was opened."""

    def ask(self, key: Hashable, now: float) -> Refusal | bool:
        """Whether a call may be made: a refusal, True for a probe, False for any other call."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.until is None:
            return False
        if now >= circuit.until and not circuit.probing:
            circuit.probing = True
            return True
        wait = circuit.until - now if now < circuit.until else circuit.open_for
        return Refusal(wait, now - circuit.since < _PATIENCE)

    def tell(self, key: Hashable, ok: bool | None, now: float, *, probe: bool) -> None:
        """How a call ended; None: it tells nothing of the receiver."""
        circuit = self._circuits.get(key)
        if circuit is not None and probe:
            circuit.probing = False
        if ok is None or not self._settings.failures:
            return
        if ok:
            if circuit is not None:
                self.open -= circuit.until is not None
                del self._circuits[key]
            return
        if circuit is None:
            self._make_room()
            circuit = self._circuits[key] = _Circuit()
        if circuit.until is not None:
            if probe:
                circuit.open_for = min(_LONGEST, 2 * circuit.open_for)
                circuit.until = now + circuit.open_for
            return
        circuit.failures = circuit.failures + 1 if now - circuit.last <= _WINDOW else 1
        circuit.last = now
        if circuit.failures >= self._settings.failures:
            circuit.since = now
            circuit.open_for = self._settings.open_seconds
            circuit.until = now + circuit.open_for
            self.open += 1
            self.opened += 1

    def _make_room(self) -> None:
        """Forget circuits where there are too many: the closed ones first."""
        if len(self._circuits) < _MOST:
            return
        self._circuits = {k: c for k, c in self._circuits.items() if c.until is not None}
        if len(self._circuits) >= _MOST:
            self._circuits.clear()
            self.open = 0
