"""`tickrail jobs versions|restore|undelete`: what a job was, and how to have it back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import click

from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.jobs import job_path, jobs, on_job
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.names import JOB
from tickrail_cli.output import Column, dump

_PAGE = 500


def _schedule(version: Mapping[str, Any]) -> str:
    """The schedule of a saved definition, as its document has it."""
    found = version["definition"].get("schedule")
    return "by hand" if found is None else " ".join(f"{k} {v}" for k, v in found.items())


LIST = (
    Column("version", "version"),
    Column("since", "created_at", "time"),
    Column("by", "created_by"),
    Column("name", "definition.name"),
    Column("schedule", _schedule),
)


@jobs.command("versions")
@click.argument("job", type=JOB)
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@watch_option
@shared_options
@pass_session
def job_versions(
    session: Context, /, *, job: str, version: int | None, limit: int, live: bool
) -> None:
    """List the saved definitions of JOB, the newest first, or print the one of a VERSION.

    A deleted job is named by its id.
    """
    if version is not None:
        if live:
            raise click.UsageError("--watch is for the list: a VERSION does not change")
        found = on_job(session, job, rest=f"/versions/{version}")
        form = "yaml" if session.output == "table" else session.output
        click.echo(dump(found["definition"] if session.output == "table" else found, form))
        return
    on_job(session, job)  # says which job was meant where there is none
    path, params = job_path(job, "/versions"), {"limit": min(limit, _PAGE)}
    show_items(
        session,
        lambda: islice(session.client().pages(path, params), limit),
        LIST,
        empty="No versions.",
        live=live,
    )


@jobs.command("restore")
@click.argument("job", type=JOB)
@click.argument("version", type=click.IntRange(1))
@shared_options
@pass_session
def restore_job(session: Context, /, *, job: str, version: int) -> None:
    """Give JOB the definition of one of its VERSIONs, as a new version."""
    found = on_job(session, job, "POST", f"/versions/{version}/restore")
    session.done(
        f"{found['name']} is as in version {version}: now version {found['version']}.", found
    )


@jobs.command("undelete")
@click.argument("job", nargs=-1, required=True)
@shared_options
@pass_session
def undelete_job(session: Context, /, *, job: tuple[str, ...]) -> None:
    """Have deleted jobs back, within 30 days: they go on from now.

    A name means the job of that name which was deleted last.
    """
    for one in job:
        found = on_job(session, one, "POST", "/undelete")
        due = found["next_run_at"]
        then = f"next run {session.time(due)}" if due else found["state"]
        session.done(f"{found['name']} is back ({found['id']}), {then}.", found)
