"""The noop target: succeeds at once, in the caller's thread. For load tests; off unless allowed."""

from __future__ import annotations

from tickrail.core.execution import SUCCESS, Done, Run


class NoopExecutor:
    """`core.execution.Executor` for `noop`."""

    kinds = frozenset({"noop"})

    def start(self, run: Run, done: Done) -> None:
        """Done before it returns."""
        done(run, SUCCESS)

    def cancel(self, run: Run, reason: str) -> None:
        """Nothing runs that could be stopped."""

    def close(self, grace: float) -> None:
        """Nothing to wait for."""
