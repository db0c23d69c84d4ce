"""What this worker tells of itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib.metadata import version

from tickrail.core.ports_reports import WorkerInfo
from tickrail.runtime.settings import Settings


def worker_info(
    settings: Settings,
    targets: tuple[str, ...],
    tasks: tuple[str, ...],
    count: Callable[[], int],
    closing: Callable[[], bool],
) -> Callable[[], WorkerInfo]:
    """The worker as it is when it is asked for; its id is new at each start of the process.

    Args:
        settings: what it serves.
        targets: the kinds of target that it runs.
        tasks: names of the functions that it can run.
        count: how many runs it has.
        closing: whether it drains.
    """
    identity = f"{settings.name}-{secrets.token_hex(4)}"

    def info() -> WorkerInfo:
        return WorkerInfo(
            identity,
            settings.name,
            settings.worker_queues,
            targets,
            tasks,
            version("tickrail"),
            settings.worker_concurrency,
            count(),
            closing(),
        )

    return info
