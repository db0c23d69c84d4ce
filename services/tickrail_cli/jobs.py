"""`tickrail jobs`: list, make, change and trigger jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import click

from tickrail.core.clock import SystemClock
from tickrail.sdk.client import ApiError
from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.job_columns import CARD, LIST, SLOTS
from tickrail_cli.live import show_item, show_items, watch_option
from tickrail_cli.names import JOB, QUEUE
from tickrail_cli.near import nearest_names

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NOT_FOUND = 404
_PAGE = 500
_LATEST = 20
_RANGE = 10_000

STATES = ("active", "paused", "finished", "deleted")


def is_id(text: str) -> bool:
    """Whether something is named by its id."""
    return _UUID.fullmatch(text) is not None


def job_path(job: str, rest: str = "") -> str:
    """The path of a job that is named by id or by name."""
    ref = job if is_id(job) else f"name:{job.removeprefix('name:')}"
    return f"/v1/jobs/{quote(ref, safe=':')}{rest}"


def on_job(
    session: Context,
    job: str,
    method: str = "GET",
    rest: str = "",
    *,
    json: object = None,
    params: Mapping[str, str | int] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 - any JSON
    """One call about a job.

    Raises:
        click.ClickException: there is no such job; names the nearest.
        ApiError: as `Client.request`.
    """
    try:
        path = job_path(job, rest)
        return session.client().request(method, path, json=json, params=params, headers=headers)
    except ApiError as e:
        if e.status != _NOT_FOUND or is_id(job):
            raise
        hint = nearest_names(session, job, "/v1/jobs", prefix_filter="name_prefix")
        raise click.ClickException(f"there is no job {job!r}{hint}") from None


@click.group(cls=NearGroup)
def jobs() -> None:
    """List, make, pause, trigger and delete jobs. JOB is a name or an id."""


@jobs.command("list")
@click.option("--state", type=click.Choice(STATES))
@click.option("--tag", multiple=True, metavar="KEY:VALUE", help="Only jobs with this tag.")
@click.option("--prefix", metavar="TEXT", help="Only jobs whose name begins so.")
@click.option("--queue", type=QUEUE, metavar="NAME")
@click.option("--limit", type=click.IntRange(1), help="At most so many; all.")
@watch_option
@shared_options
@pass_session
def list_jobs(
    session: Context,
    /,
    *,
    state: str | None,
    tag: tuple[str, ...],
    prefix: str | None,
    queue: str | None,
    limit: int | None,
    live: bool,
) -> None:
    """List jobs."""
    params: dict[str, Any] = {"limit": min(limit or _PAGE, _PAGE)}
    given = {"state": state, "name_prefix": prefix, "queue": queue, "tag": list(tag)}
    params.update({name: value for name, value in given.items() if value})
    show_items(
        session,
        lambda: islice(session.client().pages("/v1/jobs", params), limit),
        LIST,
        empty="No jobs. `tickrail jobs create` makes one.",
        live=live,
    )


@jobs.command("get")
@click.argument("job", type=JOB)
@watch_option
@shared_options
@pass_session
def get_job(
    session: Context,
    /,
    *,
    job: str,
    live: bool,
) -> None:
    """Show one job."""
    show_item(session, lambda: on_job(session, job), CARD, live=live)


@jobs.command("delete")
@click.argument("job", type=JOB, nargs=-1, required=True)
@yes_option
@shared_options
@pass_session
def delete_job(session: Context, /, *, job: tuple[str, ...], yes: bool) -> None:
    """Delete jobs; what is under way finishes."""
    confirm(f"Delete {named('job', job)}?", yes=yes)
    for one in job:
        on_job(session, one, "DELETE")
        session.done(f"Deleted {one}.")


@jobs.command("slots")
@click.argument("job", type=JOB)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    help="So many of the latest slots (20), or of a range (all, up to 10,000).",
)
@click.option(
    "--next",
    "coming",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="And so many to come.",
)
@click.option("--from", "since", metavar="INSTANT", help="Slots of a range instead, from here on,")
@click.option("--to", "until", metavar="INSTANT", help="up to here, not included.")
@click.option("--oldest-first", is_flag=True, help="The newest stand first otherwise.")
@watch_option
@shared_options
@pass_session
def job_slots(
    session: Context,
    /,
    *,
    job: str,
    limit: int | None,
    coming: int,
    since: str | None,
    until: str | None,
    oldest_first: bool,
    live: bool,
) -> None:
    """Show what became of each due slot of JOB: launched, skipped and why, upcoming.

    The latest slots and the next ones; with --from or --to the slots of that range. One that is
    `undecided` has passed, and no scheduler has launched it or left it out yet.
    """
    on_job(session, job)  # says which job was meant where there is none

    def rows(most: int, *, ascending: bool, **edges: str | None) -> list[Mapping[str, Any]]:
        params = {name: edge for name, edge in edges.items() if edge}
        params |= {"sort": "at" if ascending else "-at"}
        path = job_path(job, "/slots")
        pages = session.client().pages(path, {**params, "limit": min(most, _PAGE)})
        return list(islice(pages, most))

    def latest() -> list[Mapping[str, Any]]:
        now = SystemClock().now().isoformat()
        found = rows(limit or _LATEST, ascending=False, to=now)
        if coming:
            found = [*reversed(rows(coming, ascending=True, **{"from": now})), *found]
        return found[::-1] if oldest_first else found

    if since or until:
        if live:
            raise click.UsageError("--watch is for the latest slots: without --from and --to")
        most = limit or _RANGE
        found = rows(most + 1, ascending=oldest_first, **{"from": since, "to": until})
        if len(found) > most:
            session.warn(
                f"only the {'first' if oldest_first else 'last'} {most:,} rows of the range are"
                f" shown; {'--limit shows more' if limit is None else 'there are more'}"
            )
            found.pop()
        session.echo_items(found, SLOTS, empty="No slots yet.")
    else:
        show_items(session, latest, SLOTS, empty="No slots yet.", live=live)
