"""What a worker serves: its app of tasks, its kinds of target, and whether its queues need more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tickrail.core.errors import Problem, SettingsError, SetupError
from tickrail.runtime.settings import Settings
from tickrail.sdk.app import App, load_app

TASK = "task"


def find_app(settings: Settings) -> App | None:
    """The app of this worker, its module imported; None where it has none.

    Raises:
        SettingsError: it cannot be loaded, or tasks are to be run and there is none.
    """
    if settings.worker_app:
        return load_app(settings.worker_app)
    if TASK in settings.worker_targets:
        expected = "--app MODULE:APP (TICKRAIL_WORKER_APP)"
        raise SettingsError(
            "The worker cannot run tasks.",
            [Problem("TICKRAIL_WORKER_TARGETS", "names task and there is no app", expected)],
        )
    return None


def served_kinds(settings: Settings, app: App | None) -> tuple[str, ...]:
    """The kinds of target that this worker runs: those of its settings, and tasks with an app."""
    kinds = (*settings.worker_targets, *([TASK] if app is not None else []))
    return tuple(dict.fromkeys(kinds))


def check_queues(served: Sequence[str], queues: Mapping[str, Sequence[str]]) -> None:
    """See whether the worker can run all that its queues hold.

    What a queue serves may be in any of its messages, and a worker cannot leave one to another.

    Args:
        served: the kinds that the worker runs.
        queues: the kinds that each of its queues serves.

    Raises:
        SetupError: it does not run one of them.
    """
    for queue, kinds in queues.items():
        missing = sorted(set(kinds) - set(served))
        if not missing:
            continue
        ways = []
        if TASK in missing:
            ways.append("name the app that holds the tasks (--app MODULE:APP, TICKRAIL_WORKER_APP)")
        if others := [kind for kind in missing if kind != TASK]:
            ways.append(f"add {', '.join(others)} to TICKRAIL_WORKER_TARGETS")
        raise SetupError(
            f"The queue {queue} serves {', '.join(missing)}, which this worker does not run:"
            f" {' and '.join(ways)}, or let the queue serve less."
        )
