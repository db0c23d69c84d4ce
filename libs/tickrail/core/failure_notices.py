"""What is told of launches that ended dead or abandoned, and of jobs that paused themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tickrail.core.definition import instant_text
from tickrail.core.ids import JobId, LaunchId, TenantId
from tickrail.core.on_failures import channels_of
from tickrail.core.ports_notice import NewNotice, NoticeKind
from tickrail.core.states import State

SYSTEM = "system"
"""Who paused a job that paused itself; the actor in its audit entry."""
PAUSE_REASON = "launches in a row that ended dead or abandoned: "
"""Why a job paused itself; the number of launches follows."""
LOOK_BACK = 10_000
"""So many ended launches of a job are looked at for those in a row that failed."""
_TOLD = ("outcome", "code", "message")


class FailedLaunch(NamedTuple):
    """A launch that ended dead or abandoned, of a job that wants something then.

    `on_failures` is the document of the job's present version.
    """

    id: LaunchId
    scheduled_at: datetime
    tenant: TenantId
    job: JobId
    job_name: str
    origin: str
    state: State
    attempt: int
    failures: int
    finished_at: datetime
    result: Mapping[str, Any] | None
    on_failures: Mapping[str, Any]


class PausedJob(NamedTuple):
    """A job that paused itself. `note` is what the job shows as `paused`."""

    job: JobId
    tenant: TenantId
    job_name: str
    note: Mapping[str, Any]
    on_failures: Mapping[str, Any]


def launch_notice(launch: FailedLaunch) -> NewNotice:
    """That a launch ended dead or abandoned; without channels where nobody is to be told."""
    result = launch.result or {}
    told = {name: result.get(name) for name in _TOLD}
    slot = instant_text(launch.scheduled_at)
    times = "1 failure" if launch.failures == 1 else f"{launch.failures} failures"
    why = ": ".join(str(told[n]) for n in ("outcome", "message") if told[n])
    return NewNotice(
        launch.tenant,
        NoticeKind.LAUNCH_DEAD if launch.state is State.DEAD else NoticeKind.LAUNCH_ABANDONED,
        f"job:{launch.job}",
        f"{launch.job_name}: the launch of {slot} is {launch.state} after {times}"
        + (f": {why}" if why else ""),
        {
            "job": {"id": str(launch.job), "name": launch.job_name},
            "launch": {
                "id": str(launch.id),
                "scheduled_at": slot,
                "origin": launch.origin.partition(":")[0],
                "state": launch.state.value,
                "attempt": launch.attempt,
                "failures": launch.failures,
                "finished_at": instant_text(launch.finished_at),
                "result": told,
            },
        },
        [channel for _, channel in channels_of(launch.on_failures)],
    )


def pause_notice(paused: PausedJob) -> NewNotice:
    """That a job paused itself; without channels where nobody is to be told."""
    return NewNotice(
        paused.tenant,
        NoticeKind.JOB_PAUSED,
        f"job:{paused.job}",
        f"{paused.job_name} has paused itself: {paused.note['reason']}",
        {
            "job": {"id": str(paused.job), "name": paused.job_name},
            "launch": {"id": paused.note["launch"]},
            "paused": dict(paused.note),
        },
        [channel for _, channel in channels_of(paused.on_failures)],
    )
