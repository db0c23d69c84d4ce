"""`tickrail jobs upcoming` and `skip-next`: the next slots of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.jobs import job_path, jobs, on_job
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.names import JOB
from tickrail_cli.output import Column

_MOST = 500


def notes(slot: Mapping[str, Any]) -> str:
    """Its notes, as people read them."""
    return ", ".join(str(n).replace("_", " ") for n in slot.get("notes") or ())


UPCOMING = (Column("UTC", "at"), Column("local", "local"), Column("notes", notes))


@jobs.command("upcoming")
@click.argument("job", type=JOB)
@click.option("-n", type=click.IntRange(1, _MOST), default=10, show_default=True, help="How many.")
@click.option("--from", "after", metavar="INSTANT", help="From when on; now.")
@watch_option
@shared_options
@pass_session
def upcoming(session: Context, /, *, job: str, n: int, after: str | None, live: bool) -> None:
    """Show the next slots of JOB, with what moves them or leaves them out."""
    on_job(session, job)  # says which job was meant where there is none
    params: dict[str, Any] = {"n": n, **({"after": after} if after else {})}
    path = job_path(job, "/upcoming")
    show_items(
        session,
        lambda: session.client().request("GET", path, params=params)["items"],
        UPCOMING,
        empty="No slot is known to come.",
        live=live,
    )


@jobs.command("skip-next")
@click.argument("job", type=JOB)
@click.argument("n", type=click.IntRange(0, 1000), default=1)
@shared_options
@pass_session
def skip_next(session: Context, /, *, job: str, n: int) -> None:
    """Leave out the next N slots of JOB (1); 0 takes back what was said before."""
    answer = on_job(session, job, "POST", "/skip-next", json={"n": n})
    left = answer["skip_next"]
    what = f"its next {left} slots" if left > 1 else "its next slot" if left else "no slot"
    session.done(f"{answer['name']} leaves out {what}.", answer)
