"""A loop in a thread of its own: calls its body again and again until it is stopped.

The body is one `run_once()`: it decides itself when it wants to be called next. The thread never
ends by an error: a server that is away is said once and once more when it is back, a bug is logged
with its trace each time, and both wait before the next try.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import SetupError, TickrailError, UnavailableError
from tickrail.core.ports_bus import BusError
from tickrail.core.ports_metrics import Metrics, NullMetrics

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_OUTAGES = (UnavailableError, BusError, SetupError)
_log = structlog.get_logger(__name__)


class LoopThread:
    """One loop. It lives once: what was stopped does not start again.

    Every method may be called from every thread.

    Args:
        name: what logs, metrics and health call it.
        body: one turn; answers the seconds until it wants to be called again, None or 0 for at
            once (it left work over).
        clock: measures how long a turn takes.
        stuck_after: seconds after which a turn that has not come back counts as stuck.
        at_end: called once on the loop's own thread when it ends, for what belongs to that thread.
        rng: jitter of the back-off.
        metrics: gets `loop_turns_total`, `loop_errors_total` and `loop_turn_seconds`.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[], float | None],
        clock: Clock,
        *,
        stuck_after: float = 30.0,
        at_end: Callable[[], None] | None = None,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.last_error: Exception | None = None
        """What the last turn failed with; None as soon as one succeeds."""
        self._body = body
        self._clock = clock
        self._stuck_after = stuck_after
        self._at_end = at_end
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._metrics: Metrics = metrics or NullMetrics()
        self._metrics.count("loop_errors_total", 0, loop=name)  # so that the first one is a rise
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._woken = False
        self._turn_began: float | None = None
        self._away_since: float | None = None
        self._delay = _FIRST_DELAY

    def start(self) -> None:
        """Begin; nothing if it has begun or was stopped already."""
        with self._changed:
            if self._stopping or self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Have the body called now instead of later; not while it rests after an error."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def ask_to_stop(self) -> None:
        """Let the present turn be the last, and do not wait for its end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self, timeout: float = 30.0) -> bool:
        """Let the present turn be the last, and wait for its end up to `timeout` seconds.

        Returns:
            Whether the loop has ended; True also if it never began. Called by the body itself it
            answers False at once, and the loop ends after this turn.
        """
        self.ask_to_stop()
        thread = self._thread
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout)
        return not thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for; long turns look at it."""
        return self._stopping

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def stuck(self, now: float) -> bool:
        """Whether the present turn has taken longer than `stuck_after` at this monotonic time."""
        began = self._turn_began
        return began is not None and now - began > self._stuck_after

    def trouble(self, now: float) -> str | None:
        """Why this loop fails its process's health, in words; None when it does not."""
        if self._thread is not None and not self._stopping and not self.alive:
            return "its thread has ended"
        if self.stuck(now):
            return f"its turn has taken more than {self._stuck_after:g} s"
        return None

    def _run(self) -> None:
        try:
            while not self._stopping:
                delay, rests = self._turn()
                self._wait(delay, rests=rests)
        finally:
            if self._at_end is not None:
                try:
                    self._at_end()
                except Exception:  # noqa: BLE001 - the thread ends here in any case
                    _log.exception("the end of a loop failed", loop=self.name)

    def _turn(self) -> tuple[float, bool]:
        """One call of the body: seconds until the next, and whether a wake-up is left waiting."""
        with self._changed:
            self._woken = False
        self._turn_began = began = self._clock.monotonic()
        try:
            wanted = self._body()
        except _OUTAGES as e:
            return self._failed(e, began), True
        except Exception as e:  # noqa: BLE001 - a bug in one turn does not end the loop
            _log.exception("a loop's turn failed", loop=self.name)
            self._metrics.count("loop_errors_total", loop=self.name)
            self.last_error = e
            return self._backoff(), True
        finally:
            self._turn_began = None
            self._metrics.count("loop_turns_total", loop=self.name)
            self._metrics.observe(
                "loop_turn_seconds", max(0.0, self._clock.monotonic() - began), loop=self.name
            )
        self._succeeded()
        return max(0.0, wanted or 0.0), False

    def _failed(self, error: TickrailError, now: float) -> float:
        self.last_error = error
        if self._away_since is None:
            self._away_since = now
            _log.warning("waiting for a server", loop=self.name, code=error.code, error=str(error))
        return self._backoff()

    def _succeeded(self) -> None:
        since, self._away_since = self._away_since, None
        self.last_error = None
        self._delay = _FIRST_DELAY
        if since is not None:
            away = round(self._clock.monotonic() - since, 3)
            _log.info("goes on", loop=self.name, seconds_away=away)

    def _backoff(self) -> float:
        delay = self._delay
        self._delay = min(_LONGEST_DELAY, delay * 2)
        return delay * self._rng.uniform(0.5, 1.0)

    def _wait(self, delay: float, *, rests: bool) -> None:
        if delay <= 0:
            return
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or (self._woken and not rests), timeout=delay
            )


def troubles(loops: Iterable[LoopThread], clock: Clock) -> dict[str, str]:
    """What fails the health of a process with these loops: loop name -> why."""
    now = clock.monotonic()
    return {loop.name: why for loop in loops if (why := loop.trouble(now)) is not None}


def stop_all(loops: Iterable[LoopThread], timeout: float, clock: Clock) -> list[str]:
    """Stop loops together within `timeout` seconds in all; the names of those that go on."""
    those = list(loops)
    for loop in those:
        loop.ask_to_stop()
    until = clock.monotonic() + timeout
    return [loop.name for loop in those if not loop.stop(max(0.0, until - clock.monotonic()))]
