"""How a job and its slots are shown to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tickrail_cli.output import Column


def words(job: Mapping[str, Any]) -> str:
    """The schedule in words."""
    said = job.get("schedule_words")
    return str(said) if said else "by hand" if job.get("schedule") is None else "-"


def target(job: Mapping[str, Any]) -> str:
    """The target in a few words."""
    document = job.get("target") or {}
    for kind, inner in document.items():
        told = inner if isinstance(inner, Mapping) else {}
        what = told.get("url") or told.get("shell") or told.get("topic") or told.get("name")
        if what is None and told.get("argv"):
            what = " ".join(map(str, told["argv"]))
        return f"{kind} {what}" if what else str(kind)
    return "-"


def tags(job: Mapping[str, Any]) -> str:
    """The tags as `key:value`."""
    return ", ".join(f"{k}:{v}" if v else str(k) for k, v in (job.get("tags") or {}).items())


def paused(job: Mapping[str, Any]) -> str:
    """Who paused it, until when and why."""
    found = job.get("paused") or {}
    said = [f"{k} {found[k]}" for k in ("by", "who", "at", "when", "until") if found.get(k)]
    return ", ".join([*said, *([str(found["reason"])] if found.get("reason") else [])])


def standing(job: Mapping[str, Any]) -> str:
    """The state; an active job that has no plan does not look like one that runs."""
    return "unplannable" if job.get("error") and job["state"] == "active" else str(job["state"])


def notes(job: Mapping[str, Any]) -> str:
    """What is legal in it but probably not meant."""
    return "; ".join(str(warning["message"]) for warning in job.get("lint") or ())


def calendars(job: Mapping[str, Any]) -> str:
    """The calendars that it names."""
    use = job.get("calendars") or {}
    said = [f"{how} {', '.join(use[how])}" for how in ("exclude", "include") if use.get(how)]
    return "; ".join([*said, f"on excluded {use['on_excluded']}"]) if said else ""


def left_out(job: Mapping[str, Any]) -> str:
    """How many of the next slots are left out by hand."""
    count = job.get("skip_next") or 0
    return f"the next {count}" if count else ""


LIST = (
    Column("name", "name"),
    Column("state", standing, "state"),
    Column("schedule", words),
    Column("next run", "next_run_at", "time"),
    Column("last launch", "last_launch.state", "state"),
    Column("queue", "queue"),
)
CARD = (
    Column("name", "name"),
    Column("id", "id"),
    Column("state", standing, "state"),
    Column("cannot be planned", "error"),
    Column("paused", paused),
    Column("description", "description"),
    Column("tags", tags),
    Column("schedule", words),
    Column("document", "schedule"),
    Column("notes", notes),
    Column("calendars", calendars),
    Column("next run", "next_run_at", "time"),
    Column("left out by hand", left_out),
    Column("no success since", "silent_since", "time"),
    Column("last launch", "last_launch.id"),
    Column("ended as", "last_launch.state", "state"),
    Column("target", target),
    Column("payload", "payload"),
    Column("queue", "queue"),
    Column("priority", "priority"),
    Column("overlap", "overlap"),
    Column("misfire", "misfire.policy"),
    Column("attempts", "retry.max_attempts"),
    Column("timeout", "timeout"),
    Column("partition", "partition"),
    Column("version", "version"),
    Column("created", "created_at", "time"),
    Column("updated", "updated_at", "time"),
)
SLOTS = (
    Column("due", "at", "time"),
    Column("slots", lambda row: row.get("count", 1)),
    Column("state", "state", "state"),
    Column("launch", "launch.state", "state"),
    Column("id", "launch.id"),
    Column("reason", "reason"),
)
