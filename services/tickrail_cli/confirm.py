"""Asking before something is destroyed: on a terminal a question, elsewhere `--yes` is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_NAMED = 5


def yes_option(command: F) -> F:
    """The flag `--yes`, handed to the command as `yes`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if that is wanted.

    Args:
        question: what is about to be done, such as `Delete the job nightly?`.
        yes: whether `--yes` was given.

    Raises:
        click.UsageError: nobody is there to be asked, and `--yes` was not given.
        click.ClickException: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} Nobody is there to be asked: give --yes. Nothing was done."
        )
    if not click.confirm(question, err=True):
        raise click.ClickException("not confirmed; nothing was done")


def named(what: str, names: Sequence[str]) -> str:
    """`the job a`, or `3 jobs: a, b, c`; a long list is cut short."""
    if len(names) == 1:
        return f"the {what} {names[0]}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} {what}s: {', '.join(names[:_NAMED])}{more}"
