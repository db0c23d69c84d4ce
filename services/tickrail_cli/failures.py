"""What the command line says when something went wrong, and its exit codes."""

from __future__ import annotations

import os
import sys
import traceback

import click

from tickrail.core.errors import SettingsError, TickrailError, UnavailableError

FAILED = 1
WRONG_USE = 2
UNREACHABLE = 3
INTERRUPTED = 130


class CompareError(Exception):
    """Two things could not be compared, for the reason inside: exit code 1 means a difference."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def failure(error: Exception, *, verbose: bool) -> int:
    """Say an error in words on standard error; the exit code."""
    if isinstance(error, CompareError):
        code = failure(error.reason, verbose=verbose)
        return WRONG_USE if code == FAILED else code
    if isinstance(error, BrokenPipeError):  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if verbose and not isinstance(error, click.ClickException):
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        error.show(sys.stderr)
        return error.exit_code
    code, text = _words(error)
    click.echo(f"tickrail: {text}", err=True)
    return code


def _words(error: Exception) -> tuple[int, str]:
    if isinstance(error, SettingsError):
        return WRONG_USE, str(error)
    if isinstance(error, UnavailableError):
        return UNREACHABLE, str(error)
    if isinstance(error, TickrailError):
        return FAILED, str(error)
    found = _of_client(error)
    if found is not None:
        return found
    return FAILED, f"something went wrong inside: {type(error).__name__}: {error} (-v shows where)"


def _of_client(error: Exception) -> tuple[int, str] | None:
    """The client's errors; its module is imported only where it is in use already."""
    module = sys.modules.get("tickrail.sdk.client")
    if module is None:
        return None
    if isinstance(error, module.UnreachableError):
        return UNREACHABLE, f"{error}\n  is it running, and is --url (TICKRAIL_API_URL) right?"
    if isinstance(error, module.ApiError):
        hint = {
            "unauthenticated": "\n  give a valid key with --key or TICKRAIL_API_KEY",
            "forbidden": "\n  use another key (--key or TICKRAIL_API_KEY)",
        }.get(error.code, "")
        named = f"\n  request {error.request_id}" if error.status >= 500 else ""  # noqa: PLR2004 - the server's own failures
        return FAILED, f"{error}{hint}{named}"
    return None
