"""`tickrail jobs create`, `put` and `update`: what makes a job of a document, and changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from tickrail.core.on_failures import MAX_PAUSE_AFTER
from tickrail.core.policies import MisfirePolicy, Overlap
from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.files import parse_json, read_document
from tickrail_cli.jobs import job_path, jobs, on_job
from tickrail_cli.names import JOB

_TARGETS = frozenset({"webhook", "shell", "kafka", "task"})


@jobs.command("create")
@click.option("-f", "--file", metavar="FILE", help="The job's document, JSON or YAML; - for stdin.")
@click.option("--name", help="Its name.")
@click.option("--cron", metavar="EXPR", help="Its schedule, as cron writes it.")
@click.option("--every", metavar="DURATION", help="Or each so often, such as 15m.")
@click.option("--at", metavar="INSTANT", help="Or once.")
@click.option("--tz", metavar="ZONE", help="Time zone of --cron and --at.")
@click.option(
    "--exclude", multiple=True, metavar="CALENDAR", help="Leave out the times of this calendar."
)
@click.option("--webhook", metavar="URL", help="Its target: POST to this address.")
@click.option("--shell", metavar="COMMAND", help="Or run this command line.")
@click.option("--kafka", metavar="TOPIC", help="Or send a message to this topic.")
@click.option("--task", metavar="TASK", help="Or call this task of the workers' app.")
@click.option("--args", metavar="JSON", help="The task's arguments, an object.")
@click.option("--payload", metavar="JSON", help="What the target gets.")
@click.option(
    "--misfire", type=click.Choice([m.value for m in MisfirePolicy]), help="For late slots."
)
@click.option(
    "--overlap", type=click.Choice([o.value for o in Overlap]), help="For a run too long."
)
@click.option("--tag", multiple=True, metavar="KEY:VALUE", help="A tag; give it several times.")
@click.option(
    "--notify",
    multiple=True,
    metavar="CHANNEL",
    help="Tell this channel of launches given up: webhook:SECRET or kafka:TOPIC; several times.",
)
@click.option(
    "--pause-after",
    type=click.IntRange(1, MAX_PAUSE_AFTER),
    help="Pause it after so many launches in a row that were given up.",
)
@click.option(
    "--expect-success-every",
    "expect",
    metavar="DURATION",
    help="Tell the channels, too, when it has not succeeded for so long (26h).",
)
@click.option("--paused", is_flag=True, help="Make it paused.")
@shared_options
@pass_session
def create_job(  # noqa: PLR0913 - click hands over each option by name
    session: Context,
    /,
    *,
    file: str | None,
    paused: bool,
    exclude: tuple[str, ...],
    tag: tuple[str, ...],
    notify: tuple[str, ...],
    pause_after: int | None,
    expect: str | None,
    misfire: str | None,
    **given: str | None,
) -> None:
    """Make a job: from a document, or from the flags."""
    document = _document(file) if file else {}
    document.update(_from_flags(given))
    if misfire:
        document["misfire"] = _inside(document, "misfire") | {"policy": misfire}
    if tag:
        document["tags"] = _inside(document, "tags") | _tags(tag)
    if exclude:
        document["calendars"] = _inside(document, "calendars") | {"exclude": list(exclude)}
    members = {
        "notify": list(notify),
        "pause_after": pause_after,
        "expect_success_every": expect,
    }
    wanted = {name: value for name, value in members.items() if value}
    if wanted:
        document["on_failures"] = _inside(document, "on_failures") | wanted
    if paused:
        document["paused"] = True
    if not document:
        raise click.UsageError("give a document with -f, or --name, a schedule and a target")
    made = session.client().request("POST", "/v1/jobs", json=document)
    _say(session, f"Created {made['name']} ({made['id']})", made)


def _from_flags(given: Mapping[str, str | None]) -> dict[str, Any]:
    """The document that the flags describe.

    Raises:
        click.UsageError: two schedules, two targets, a zone without a schedule, or arguments
            without a task.
    """
    document: dict[str, Any] = {}
    forms = {"cron": given["cron"], "every": given["every"], "at": given["at"]}
    schedules = {k: v for k, v in forms.items() if v}
    targets = {k: v for k, v in given.items() if k in _TARGETS and v}
    if len(schedules) > 1 or len(targets) > 1:
        raise click.UsageError(
            "give one of --cron, --every, --at and one of --webhook, --shell, --kafka, --task"
        )
    if given["args"] is not None and not given["task"]:
        raise click.UsageError("--args belongs to --task")
    if given["tz"] and not schedules.keys() & {"cron", "at"}:
        raise click.UsageError("--tz belongs to --cron or --at")
    document.update({k: given[k] for k in ("name", "overlap") if given[k]})
    if schedules:
        document["schedule"] = schedules | ({"time_zone": given["tz"]} if given["tz"] else {})
    if given["webhook"]:
        document["target"] = {"webhook": {"url": given["webhook"]}}
    if given["shell"]:
        document["target"] = {"command": {"shell": given["shell"]}}
    if given["kafka"]:
        document["target"] = {"kafka": {"topic": given["kafka"]}}
    if given["task"]:
        args = {} if given["args"] is None else parse_json(given["args"], "--args")
        document["target"] = {"task": {"name": given["task"], "args": args}}
    if given["payload"] is not None:
        document["payload"] = parse_json(given["payload"], "--payload")
    return document


def _document(file: str) -> dict[str, Any]:
    """The job's document in a file.

    Raises:
        click.ClickException: it cannot be read, or is no object.
    """
    document = read_document(file)
    if not isinstance(document, dict):
        raise click.ClickException(f'{file}: a job is an object, such as {{"name": ...}}')
    return document


def _inside(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object that a document has under a name, to which a flag adds."""
    found = document.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _tags(words: Sequence[str]) -> dict[str, str]:
    """Tags that were written as `key:value`."""
    split = (word.partition(":") for word in words)
    return {key: value for key, _, value in split}


def _say(session: Context, what: str, job: Mapping[str, Any]) -> None:
    session.done(f"{what}, next run {session.time(job.get('next_run_at'))}.", job)
    for warning in job.get("lint") or ():
        session.note(warning["message"])


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


_version = click.option(
    "--if-version", type=click.IntRange(1), help="Only if the job is at this version now."
)


@jobs.command("put")
@click.option(
    "-f", "--file", metavar="FILE", required=True, help="Its document, JSON or YAML; - for stdin."
)
@_version
@shared_options
@pass_session
def put_job(session: Context, /, *, file: str, if_version: int | None) -> None:
    """Make the job of a document, or replace the job of that name."""
    document = _document(file)
    name = document.get("name")
    if not isinstance(name, str):
        raise click.ClickException(f"{file}: /name: says which job is meant, and is missing")
    path, headers = job_path(f"name:{name}"), _if_match(if_version)
    job = session.client().request("PUT", path, json=document, headers=headers)
    _say(session, f"Put {job['name']}, version {job['version']}", job)


@jobs.command("update")
@click.argument("job", type=JOB)
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    required=True,
    help="The fields to change, JSON or YAML; - for stdin. null takes back to the default.",
)
@_version
@shared_options
@pass_session
def update_job(session: Context, /, *, job: str, file: str, if_version: int | None) -> None:
    """Change some fields of JOB: the file is a JSON merge patch of its document."""
    patch = _document(file)
    changed = on_job(session, job, "PATCH", json=patch, headers=_if_match(if_version))
    _say(session, f"Updated {changed['name']}, version {changed['version']}", changed)
