"""Waiting for what goes on: asked again and again until it has ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from tickrail_cli.context import Context

_POLL = 0.5
_LONG = 20
"""From so many steps on, a bar is shown."""


def watch(
    session: Context, path: str, say: Callable[[Mapping[str, Any]], str]
) -> Mapping[str, Any]:
    """Read what is at a path until its state is no longer `running`; Ctrl-C ends the waiting only.

    People are told of each change on standard error: by a bar on a terminal, by lines elsewhere.

    Args:
        session: the command line's session.
        path: of a document with a `state`, a `total`, and `done` or `remaining`.
        say: how far it is, in a line.
    """
    found: Mapping[str, Any] = session.client().request("GET", path)
    with _shown(session, found, say) as show:
        moment = threading.Event()
        while found["state"] == "running":
            show(found)
            moment.wait(_POLL)
            found = session.client().request("GET", path)
        show(found)
    return found


@contextmanager
def _shown(
    session: Context, first: Mapping[str, Any], say: Callable[[Mapping[str, Any]], str]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """How what goes on is shown."""
    if _is_seen(session):
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - slow to load

        console = _stderr()
        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(say(first), total=first.get("total"))

            def move(found: Mapping[str, Any]) -> None:
                total = found.get("total")
                left = found.get("remaining")
                done = found.get("done", None if left is None or total is None else total - left)
                progress.update(task, description=say(found), total=total, completed=done or 0)

            yield move
        return
    said = [""]

    def tell(found: Mapping[str, Any]) -> None:
        line = say(found)
        if line != said[-1]:
            said[-1] = line
            if session.output == "table":
                click.echo(line, err=True)

    yield tell


@contextmanager
def bar(session: Context, what: str, total: int) -> Iterator[Callable[[], object]]:
    """A bar on a terminal for work of many steps; what is handed out is called at each."""
    if total < _LONG or not _is_seen(session):
        yield lambda: None
        return
    from rich.progress import Progress  # noqa: PLC0415 - slow to load

    with Progress(console=_stderr(), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


def _is_seen(session: Context) -> bool:
    return session.output == "table" and sys.stderr.isatty()


def _stderr() -> Any:  # noqa: ANN401 - a console of rich, which is slow to load
    from rich.console import Console  # noqa: PLC0415 - as it says

    return Console(stderr=True, highlight=False)
