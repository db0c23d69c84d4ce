"""`tickrail jobs pause` and `resume`: one job, or all jobs of a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.jobs import jobs, on_job
from tickrail_cli.names import JOB, QUEUE
from tickrail_cli.operations import operation_path, progress
from tickrail_cli.watching import watch

F = TypeVar("F", bound=Callable[..., Any])
_MANY = ("tag", "prefix", "queue", "state", "all_jobs", "dry_run", "follow")


def many_options(command: F) -> F:
    """The options that say which jobs, in place of JOB."""
    for option in (
        click.option("--watch", "follow", is_flag=True, help="Wait until all is done."),
        click.option("--dry-run", is_flag=True, help="Only show which."),
        click.option("--all", "all_jobs", is_flag=True, help="Every job."),
        click.option(
            "--state",
            multiple=True,
            type=click.Choice(["active", "paused", "finished"]),
            help="All jobs in this state.",
        ),
        click.option("--queue", type=QUEUE, metavar="NAME", help="All jobs of this queue."),
        click.option("--prefix", metavar="TEXT", help="All jobs whose name begins so."),
        click.option(
            "--tag", multiple=True, metavar="KEY:VALUE", help="All jobs with this tag (and that)."
        ),
    ):
        command = option(command)
    return command


def wanted(job: str | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The filter that the options describe; None: one job is meant.

    Raises:
        click.UsageError: JOB stands beside a filter, or neither is there.
    """
    named = [name for name in _MANY if given[name] not in (None, False, ())]
    if job is not None:
        if named:
            raise click.UsageError("give JOB, or say which jobs with options, not both")
        return None
    asked = {
        "tag": list(given["tag"]),
        "name_prefix": given["prefix"],
        "queue": given["queue"],
        "state": list(given["state"]),
    }
    found = {name: value for name, value in asked.items() if value not in (None, [])}
    if not found and not given["all_jobs"]:
        raise click.UsageError("give JOB, or --tag, --prefix, --queue, --state or --all")
    return found


def many(
    session: Context, verb: str, where: Mapping[str, Any], body: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:  # fmt: skip
    """Do it to all jobs of a filter."""
    document = {**body, "filter": where}
    path = f"/v1/jobs/{verb}"
    if given["dry_run"]:
        said = session.client().request("POST", path, json={**document, "dry_run": True})
        lines = [*said["names"], *(["..."] if said["total"] > len(said["names"]) else [])]
        session.done("\n".join([*lines, f"{said['total']} jobs."]), said)
        return
    made = session.client().request("POST", path, json=document)
    if not given["follow"]:
        session.done(
            f"On the way for {made['total']} jobs;"
            f" `tickrail operations get {made['id']}` shows how far.",
            made,
        )
        return
    ended = watch(session, operation_path(made["id"]), progress)
    session.done(f"Operation {made['id']} is {progress(ended)}.", ended)
    if ended["state"] == "failed":
        raise click.exceptions.Exit(1)


@jobs.command("pause")
@click.argument("job", type=JOB, required=False)
@click.option("--until", metavar="INSTANT", help="Resume by itself then.")
@click.option("--reason", metavar="TEXT")
@click.option("--cancel", is_flag=True, help="Cancel what is under way; it may finish otherwise.")
@many_options
@shared_options
@pass_session
def pause_job(
    session: Context,
    /,
    *,
    job: str | None,
    until: str | None,
    reason: str | None,
    cancel: bool,
    **given: Any,  # noqa: ANN401 - the options of many_options
) -> None:
    """Stop a job, or all jobs that the options name, from being launched by its schedule."""
    body: dict[str, str] = {"in_flight": "cancel"} if cancel else {}
    body |= {k: v for k, v in {"until": until, "reason": reason}.items() if v}
    where = wanted(job, given)
    if where is not None or job is None:
        many(session, "pause", where or {}, body, given)
        return
    answer = on_job(session, job, "POST", "/pause", json=body)
    session.done(f"Paused {answer['name']}.", answer)


@jobs.command("resume")
@click.argument("job", type=JOB, required=False)
@click.option(
    "--catch-up",
    type=click.Choice(["none", "policy"]),
    help="Whether slots of the pause follow the job's misfire policy; none are launched otherwise.",
)
@click.option("--max-count", type=click.IntRange(1), metavar="N", help="Or launch so many of them.")
@click.option("--max-age", metavar="DURATION", help="Or those that are no older.")
@click.option("--order", type=click.Choice(["oldest", "newest"]), help="Which of them first.")
@click.option("--per-minute", type=click.IntRange(1), metavar="N", help="So many a minute.")
@many_options
@shared_options
@pass_session
def resume_job(
    session: Context,
    /,
    *,
    job: str | None,
    catch_up: str | None,
    max_count: int | None,
    max_age: str | None,
    order: str | None,
    per_minute: int | None,
    **given: Any,  # noqa: ANN401 - the options of many_options
) -> None:
    """Let a paused job, or all jobs that the options name, run again."""
    rules = {"max_count": max_count, "max_age": max_age, "order": order, "per_minute": per_minute}
    bounds = {k: v for k, v in rules.items() if v is not None}
    if bounds and catch_up:
        raise click.UsageError("--catch-up stands beside bounds of the catch-up; give one")
    body: dict[str, Any] = {"catch_up": bounds or catch_up} if bounds or catch_up else {}
    where = wanted(job, given)
    if where is not None or job is None:
        many(session, "resume", where or {}, body, given)
        return
    answer = on_job(session, job, "POST", "/resume", json=body)
    next_run = session.time(answer.get("next_run_at"))
    session.done(f"Resumed {answer['name']}, next run {next_run}.", answer)
