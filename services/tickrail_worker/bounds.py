"""What this process may open, beside what its settings want it to hold open."""

from __future__ import annotations

import resource

FILES_OF_ITS_OWN = 128
"""Connections to the servers, logs, libraries: what a worker has open before the first run."""
FILES_PER_COMMAND = 6
"""Pipes of a command and of what watches it."""


def concurrency_problem(runs: int, commands: int, files: int | None = None) -> str | None:
    """Why so many runs cannot be held open at a time, in words; None where they can.

    Claims, ends and extensions have connections of their own to PostgreSQL, however many runs
    there are; what runs out is the number of files that the process may open.

    Args:
        runs: open at a time, each with a connection.
        commands: of these.
        files: that the process may open; None: as the system says.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
    wanted = FILES_OF_ITS_OWN + runs + FILES_PER_COMMAND * commands
    if soft in (resource.RLIM_INFINITY, -1) or soft >= wanted:
        return None
    return (
        f"{runs} runs at a time need about {wanted} open files, and this process may open {soft}:"
        " raise the limit (ulimit -n, LimitNOFILE) or lower TICKRAIL_WORKER_CONCURRENCY"
    )
