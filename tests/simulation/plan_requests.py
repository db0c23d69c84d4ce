"""What a seed chooses of requests to the API."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.eras import ANCHOR

_LAST = 24.0
_REDRIVEN = 0.4
"""The share of histories with redrives."""
_KINDS = (
    "trigger", "trigger", "trigger", "cancel", "cancel", "cancel", "pause", "skip_next",
    "skip_next", "delete", "suspend", "edit", "edit", "edit", "calendar", "backfill", "backfill",
    "pause_queue", "unheard",
)  # fmt: skip
_EVERY = (2, 3, 5, 8, 60)
_WINDOWS = (("10:00:05", "10:00:09"), ("10:00:12", "10:00:30"), ("10:00:20", "10:00:21"))


def add_request(
    rng: random.Random, jobs: Sequence[dict[str, Any]], add: Callable[..., None]
) -> None:
    """Somebody asks for something."""
    at, job = round(rng.uniform(1.0, _LAST), 3), rng.choice(jobs)
    kind, name = rng.choice(_KINDS), job["name"]
    if kind in ("suspend", "pause_queue"):
        add(at, kind, seconds=rng.choice((2.0, 7.0)))
    elif kind == "unheard":
        add(at, kind, seconds=rng.choice((0.5, 6.0)))
        add(at + 0.2, "trigger", job=name)
    elif kind == "pause":
        add(at, kind, job=name, seconds=rng.choice((2.0, 6.0)),
            catch_up=rng.choice(("none", "policy")))  # fmt: skip
    elif kind == "cancel":
        add(at, kind, job=name, state=rng.choice(("running", "queued", "due", "held")))
    elif kind == "calendar":
        add(at, kind, window=list(rng.choice(_WINDOWS)))
    elif kind == "backfill":
        back, length = rng.choice((10.0, 30.0)), rng.choice((8.0, 40.0))
        existing, cancel = rng.choice(("leave", "launch")), rng.choice((0.0, 0.0, 3.0))
        add(at, kind, job=name, back=back, length=length, existing=existing, cancel=cancel)
    elif kind == "edit":
        add(at, kind, job=name, patch=_patch(rng, job))
    else:
        add(at, kind, job=name)


def add_redrives(
    rng: random.Random, jobs: Sequence[dict[str, Any]], add: Callable[..., None]
) -> None:
    """Dead letters are redriven, at times by two people who saw the same."""
    if rng.random() < _REDRIVEN:
        for job in jobs:
            again = rng.choice((0.0, 0.2, 4.0, 9.0))
            add(round(rng.uniform(3.0, 16.0), 3), "redrive", job=job["name"], again=again)


def _patch(rng: random.Random, job: dict[str, Any]) -> dict[str, Any]:
    """A merge patch of a job."""
    if job["schedule"].get("measured_from") == "completion":
        return {"if_uncertain": rng.choice(("rerun", "skip")), "timeout": "9s"}
    changes: list[dict[str, Any]] = [
        {"schedule": _schedule(rng)},
        {"schedule": _schedule(rng), "overlap": rng.choice(("skip", "buffer_all"))},
        {"overlap": rng.choice(("allow", "skip", "buffer_one", "terminate_other"))},
        {"max_launches": rng.choice((2, 5))},
        {"visibility_timeout": rng.choice(("5s", "9s")), "if_uncertain": "skip"},
        {"calendars": rng.choice((None, {"exclude": ["rest"]}))},
    ]
    return rng.choice(changes)


def _schedule(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.2:
        return {"cron": "* * * * *"}
    return {"every": f"{rng.choice(_EVERY)}s", "anchor": ANCHOR}
