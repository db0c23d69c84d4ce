"""The jobs that a crontab's lines become: stable names and documents of the API."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tickrail.core.crontab import CrontabEntry

SET_TAG: Final = "set"
"""The tag that marks the jobs of one import."""
_SLUG: Final = 48
_OTHER = re.compile(r"[^a-z0-9]+")
_WORDS: Final = 4


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How imported jobs differ from the way cron would run them; the defaults are cron's way."""

    set_name: str
    queue: str = "default"
    overlap: str = "allow"
    misfire: str = "skip"
    max_attempts: int = 1
    timeout: str = "12h"
    paused: bool = False


def job_names(entries: Iterable[CrontabEntry], set_name: str) -> list[str]:
    """A name for each entry: a slug of the command, a short hash, an ordinal for repeats.

    The schedule is not in it, so that a changed time changes the job and makes no new one; the
    set is, so that two crontabs with the same line do not take each other's job.
    """
    seen: Counter[str] = Counter()
    names: list[str] = []
    for entry in entries:
        parts = (set_name, entry.user or "", entry.command, entry.stdin or "")
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
        name = f"{_slug(entry.command)}-{digest}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _slug(command: str) -> str:
    """The words of a command without their folders, as a job name may have them."""
    words = [part.rstrip("/").rpartition("/")[2] for part in command.split()[:_WORDS]]
    return _OTHER.sub("-", " ".join(words).lower()).strip("-")[:_SLUG].rstrip("-") or "job"


def job_document(entry: CrontabEntry, name: str, options: ImportOptions) -> dict[str, Any]:
    """The job of an entry as the API takes it; it behaves as under cron unless options say other.

    `paused` is in it only where asked for: the API takes it at creation.
    """
    env = dict(entry.env)
    target: dict[str, Any] = {"shell": entry.command}
    if env:
        target["env"] = env
    if env.get("HOME", "").startswith("/"):
        target["cwd"] = env["HOME"]
    if entry.user is not None:
        target["user"] = entry.user
    if entry.stdin is not None:
        target["stdin"] = entry.stdin
    document: dict[str, Any] = {
        "name": name,
        "description": entry.description,
        "tags": {SET_TAG: options.set_name},
        "schedule": {"cron": entry.schedule.expression, "time_zone": entry.zone},
        "overlap": options.overlap,
        "misfire": {"policy": options.misfire},
        "retry": {"max_attempts": options.max_attempts},
        "timeout": options.timeout,
        "queue": options.queue,
        "target": {"command": target},
    }
    if options.paused:
        document["paused"] = True
    return document
