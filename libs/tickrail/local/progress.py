"""What a person sees while servers download and start.

A `Progress` hands out a `Step` for each thing that takes time. Steps may run at the same time, in
several threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import Progress as RichBars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tickrail.core.clock import Clock, SystemClock


class Step(Protocol):
    """One thing under way."""

    def advance(self, done: int, total: int) -> None:
        """So many of so many are done."""
        ...

    def done(self, note: str = "") -> None:
        """It is finished; the note is shown beside it, such as a version and a port."""
        ...

    def failed(self, note: str = "") -> None:
        """It could not be finished."""
        ...


class Progress(Protocol):
    """Shows steps."""

    def step(self, name: str) -> Step:
        """Begin a step. The name is a sentence without an end: `starting PostgreSQL`."""
        ...


@contextmanager
def step_of(progress: Progress, name: str) -> Iterator[Step]:
    """A step that is marked failed if the block raises."""
    step = progress.step(name)
    try:
        yield step
    except BaseException:
        step.failed()
        raise


class _SilentStep:
    def advance(self, done: int, total: int) -> None:
        """Say nothing."""

    def done(self, note: str = "") -> None:
        """Say nothing."""

    def failed(self, note: str = "") -> None:
        """Say nothing."""


class SilentProgress:
    """Shows nothing."""

    def step(self, name: str) -> Step:  # noqa: ARG002 - the protocol's parameter
        """A step that nobody sees."""
        return _SilentStep()


class PlainProgress:
    """A line at the end of each step and, for long downloads, at each quarter: for logs and pipes.

    Args:
        stream: where the lines go; standard error unless given.
        clock: measures how long each step took.
    """

    def __init__(self, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()

    def step(self, name: str) -> Step:
        """Begin a step."""
        return _PlainStep(self, name, self._clock)

    def line(self, text: str) -> None:
        """One line, whole, also when several threads speak."""
        with self._lock:
            self._stream.write(text + "\n")
            self._stream.flush()


class _PlainStep:
    def __init__(self, owner: PlainProgress, name: str, clock: Clock) -> None:
        self._owner = owner
        self._name = name
        self._clock = clock
        self._began = clock.monotonic()
        self._quarter = 0

    def advance(self, done: int, total: int) -> None:
        """A line at each quarter."""
        quarter = 4 * done // total if total else 0
        if quarter > self._quarter:
            self._quarter = quarter
            self._owner.line(f"{self._name}: {done} of {total}")

    def done(self, note: str = "") -> None:
        """The closing line, with the seconds it took."""
        seconds = self._clock.monotonic() - self._began
        self._owner.line(f"{self._name}: {note or 'done'} ({seconds:.1f} s)")

    def failed(self, note: str = "") -> None:
        """The closing line of a step that failed."""
        self._owner.line(f"{self._name}: FAILED {note}".rstrip())


class RichProgress:
    """A spinner line for each step, for a terminal. Use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = RichBars(
            SpinnerColumn(finished_text="[green]✓[/green]"),
            TextColumn("{task.description}"),
            TextColumn("[dim]{task.fields[note]}[/dim]"),
            TimeElapsedColumn(),
            console=console or Console(stderr=True),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def step(self, name: str) -> Step:
        """Begin a step."""
        return _RichStep(self._bars, self._bars.add_task(name, total=None, note=""))


class _RichStep:
    def __init__(self, bars: RichBars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, done: int, total: int) -> None:
        """Move the counter."""
        self._bars.update(self._task, completed=done, total=total, note=f"{done} of {total}")

    def done(self, note: str = "") -> None:
        """A tick, and the note."""
        self._bars.update(self._task, completed=1, total=1, note=note)

    def failed(self, note: str = "") -> None:
        """A red word instead of the tick."""
        self._bars.update(self._task, note=f"[red]failed[/red] {note}")
        self._bars.stop_task(self._task)


@contextmanager
def best_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """Rich lines where the stream is a terminal, else plain ones."""
    out = stream if stream is not None else sys.stderr
    if out.isatty():
        with RichProgress(Console(file=out)) as progress:
            yield progress
    else:
        yield PlainProgress(out)
