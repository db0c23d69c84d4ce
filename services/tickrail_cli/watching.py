"""Waiting for what goes on: asked again and again until it has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import click

from tickrail_cli.context import Context

_POLL = 0.5


def watch(
    session: Context, path: str, say: Callable[[Mapping[str, Any]], str]
) -> Mapping[str, Any]:
    """Read what is at a path until its state is no longer `running`; Ctrl-C ends the waiting only.

    Args:
        session: the command line's session; people are told of each change on standard error.
        path: of a document with a `state`.
        say: how far it is, in a line.
    """
    moment, last = threading.Event(), ""
    while True:
        found: Mapping[str, Any] = session.client().request("GET", path)
        line = say(found)
        if line != last:
            last = line
            if session.output == "table":
                click.echo(line, err=True)
        if found["state"] != "running":
            return found
        moment.wait(_POLL)
