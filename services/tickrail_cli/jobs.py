"""`tickrail jobs`: list, make, change and trigger jobs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import click

from tickrail.core.clock import SystemClock
from tickrail.sdk.client import ApiError
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import parse_json
from tickrail_cli.job_columns import CARD, LIST, SLOTS

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NOT_FOUND = 404
_LOOK_THROUGH = 2000
_PAGE = 500
_LATEST = 20
_RANGE = 10_000

STATES = ("active", "paused", "finished", "deleted")


def job_path(job: str, rest: str = "") -> str:
    """The path of a job that is named by id or by name."""
    ref = job if _UUID.fullmatch(job) else f"name:{job.removeprefix('name:')}"
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
        if e.status != _NOT_FOUND or _UUID.fullmatch(job):
            raise
        raise click.ClickException(f"there is no job {job!r}{_near(session, job)}") from None


def _near(session: Context, job: str) -> str:
    try:
        pages = session.client().pages("/v1/jobs", {"limit": _PAGE})
        names = [str(item["name"]) for item in islice(pages, _LOOK_THROUGH)]
    except ApiError:
        return ""
    near = difflib.get_close_matches(job, names, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


@click.group(cls=NearGroup)
def jobs() -> None:
    """List, make, pause, trigger and delete jobs. JOB is a name or an id."""


@jobs.command("list")
@click.option("--state", type=click.Choice(STATES))
@click.option("--tag", multiple=True, metavar="KEY:VALUE", help="Only jobs with this tag.")
@click.option("--prefix", metavar="TEXT", help="Only jobs whose name begins so.")
@click.option("--queue", metavar="NAME")
@click.option("--limit", type=click.IntRange(1), help="At most so many; all.")
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
) -> None:
    """List jobs."""
    params: dict[str, Any] = {"limit": min(limit or _PAGE, _PAGE)}
    given = {"state": state, "name_prefix": prefix, "queue": queue, "tag": list(tag)}
    params.update({name: value for name, value in given.items() if value})
    found = islice(session.client().pages("/v1/jobs", params), limit)
    session.echo_items(found, LIST, empty="No jobs. `tickrail jobs create` makes one.")


@jobs.command("get")
@click.argument("job")
@shared_options
@pass_session
def get_job(session: Context, /, *, job: str) -> None:
    """Show one job."""
    session.echo_item(on_job(session, job), CARD)


@jobs.command("trigger")
@click.argument("job")
@click.option("--payload", metavar="JSON", help="Instead of the job's own.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]))
@click.option("--overlap", metavar="POLICY", help="Instead of the job's own, for this launch.")
@shared_options
@pass_session
def trigger_job(
    session: Context,
    /,
    *,
    job: str,
    payload: str | None,
    priority: str | None,
    overlap: str | None,
) -> None:
    """Launch a job now."""
    body: dict[str, Any] = {
        k: v for k, v in {"priority": priority, "overlap": overlap}.items() if v
    }
    if payload is not None:
        body["payload"] = parse_json(payload, "--payload")
    launch = on_job(session, job, "POST", "/trigger", json=body)
    session.done(
        f"Launched {launch['job']['name']} as {launch['id']} ({launch['state']});"
        f" `tickrail launches get {launch['id']}` shows it.",
        launch,
    )


@jobs.command("delete")
@click.argument("job", nargs=-1, required=True)
@shared_options
@pass_session
def delete_job(session: Context, /, *, job: tuple[str, ...]) -> None:
    """Delete jobs; what is under way finishes."""
    for one in job:
        on_job(session, one, "DELETE")
        session.done(f"Deleted {one}.")


@jobs.command("slots")
@click.argument("job")
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
) -> None:
    """Show what became of each due slot of JOB: launched, skipped and why, upcoming.

    The latest slots and the next ones; with --from or --to the slots of that range.
    """
    on_job(session, job)  # says which job was meant where there is none

    def rows(most: int, *, ascending: bool, **edges: str | None) -> list[Mapping[str, Any]]:
        params = {name: edge for name, edge in edges.items() if edge}
        params |= {"sort": "at" if ascending else "-at"}
        path = job_path(job, "/slots")
        pages = session.client().pages(path, {**params, "limit": min(most, _PAGE)})
        return list(islice(pages, most))

    if since or until:
        most = limit or _RANGE
        found = rows(most + 1, ascending=oldest_first, **{"from": since, "to": until})
        if len(found) > most:
            session.warn(
                f"only the {'first' if oldest_first else 'last'} {most:,} rows of the range are"
                f" shown; {'--limit shows more' if limit is None else 'there are more'}"
            )
            found.pop()
    else:
        now = SystemClock().now().isoformat()
        found = rows(limit or _LATEST, ascending=False, to=now)
        if coming:
            found = [*reversed(rows(coming, ascending=True, **{"from": now})), *found]
        if oldest_first:
            found.reverse()
    session.echo_items(found, SLOTS, empty="No slots yet.")
