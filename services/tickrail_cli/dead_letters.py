"""`tickrail dead-letters`: what was given up, its next life, and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import click
from rich.console import RenderableType

from tickrail.core.dead_letters import Reason
from tickrail_cli.confirm import confirm, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import read_document
from tickrail_cli.jobs import on_job
from tickrail_cli.live import show_items, show_whole, watch_option
from tickrail_cli.names import JOB, QUEUE
from tickrail_cli.operations import operation_path, progress
from tickrail_cli.output import Column, card_of, table_of
from tickrail_cli.watching import watch

F = TypeVar("F", bound=Callable[..., Any])
_PAGE = 500
PATH = "/v1/dead-letters"
REASONS = [r.value for r in Reason]

LIST = (
    Column("died", "died_at", "time"),
    Column("job", "job.name"),
    Column("reason", "reason"),
    Column("state", "state", "state"),
    Column("attempt", "attempt"),
    Column("redriven", "redrive_count"),
    Column("error", "error"),
    Column("id", "id"),
)
CARD = (
    Column("id", "id"),
    Column("reason", "reason"),
    Column("error", "error"),
    Column("job", "job.name"),
    Column("version", "job.version"),
    Column("state", "state", "state"),
    Column("attempt", "attempt"),
    Column("failures", "failures"),
    Column("redriven", "redrive_count"),
    Column("scheduled", "scheduled_at", "time"),
    Column("died", "died_at", "time"),
    Column("queue", "queue"),
    Column("in its topic", "published"),
    Column("target", "target"),
    Column("payload", "payload"),
    Column("answer", "last_response.body"),
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("offset", "offset"),
    Column("bytes", "size"),
    Column("value", "value.text"),
    Column("value (base64)", "value.base64"),
)
ATTEMPTS = (
    Column("attempt", "attempt"),
    Column("outcome", "outcome", "state"),
    Column("finished", "finished_at", "time"),
    Column("worker", "worker"),
    Column("message", "message"),
)


@click.group("dead-letters", cls=NearGroup)
def dead_letters() -> None:
    """Read, redrive and purge what was given up."""


def filter_options(command: F) -> F:
    """The options that say which dead letters."""
    for option in (
        click.option("--to", metavar="INSTANT", help="Only those that died before."),
        click.option(
            "--from", "from_", metavar="INSTANT", help="Only those that died then or later."
        ),
        click.option(
            "--tag",
            multiple=True,
            metavar="KEY:VALUE",
            help="Only of jobs with this tag (and that).",
        ),
        click.option("--queue", type=QUEUE, metavar="NAME", help="Only of this queue."),
        click.option(
            "--state",
            multiple=True,
            type=click.Choice(["dead", "abandoned"]),
            help="Only those in this state.",
        ),
        click.option(
            "--reason",
            multiple=True,
            type=click.Choice(REASONS),
            help="Only those for this reason.",
        ),
        click.option("--job", type=JOB, metavar="JOB", help="Only those of this job (name or id)."),
    ):
        command = option(command)
    return command


def many_options(command: F) -> F:
    """The options of what is done to many."""
    for option in (
        click.option("--watch", "follow", is_flag=True, help="Wait until all is done."),
        click.option("--dry-run", is_flag=True, help="Only show which."),
        click.option("--max-count", type=click.IntRange(1), metavar="N", help="So many at most."),
        click.option("--all", "everything", is_flag=True, help="Every dead letter."),
    ):
        command = option(command)
    return filter_options(command)


def wanted(session: Context, letters: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The filter that the arguments describe.

    Raises:
        click.UsageError: nothing says which, or ids stand beside a filter.
    """
    named = {
        "reason": list(given["reason"]),
        "state": list(given["state"]),
        "tag": list(given["tag"]),
        "queue": given["queue"],
        "from": given["from_"],
        "to": given["to"],
    }
    found = {name: value for name, value in named.items() if value not in (None, [])}
    if given["job"] is not None:
        found["job"] = on_job(session, given["job"])["id"]
    if letters:
        if found or given["everything"]:
            raise click.UsageError("give ids, or say which with options, not both")
        messages = [x for x in letters if "/" in x]
        if messages and len(messages) < len(letters):
            raise click.UsageError("launches and undecodable messages go one after the other")
        return {"kind": "undecodable", "id": messages} if messages else {"launch": list(letters)}
    if not found and not given["everything"]:
        raise click.UsageError("give ids, or --job, --reason, --state, --tag, --queue, --from,"
                               " --to or --all")  # fmt: skip
    return found


@dead_letters.command("list")
@filter_options
@click.option(
    "--kind",
    type=click.Choice(["launch", "undecodable"]),
    help="With an operator's key: only launches, or only messages that no worker could read.",
)
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@watch_option
@shared_options
@pass_session
def list_letters(
    session: Context,
    /,
    *,
    job: str | None,
    from_: str | None,
    limit: int,
    live: bool,
    **given: Any,  # noqa: ANN401 - the options of filter_options
) -> None:
    """List dead and abandoned launches, the last to die first."""
    params: dict[str, Any] = {"limit": min(limit, _PAGE)}
    params |= {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v}
    if from_:
        params["from"] = from_
    if job:
        params["job"] = on_job(session, job)["id"]
    show_items(
        session,
        lambda: islice(session.client().pages(PATH, params), limit),
        LIST,
        empty="No dead letters.",
        live=live,
    )


@dead_letters.command("get")
@click.argument("letter")
@watch_option
@shared_options
@pass_session
def get_letter(session: Context, /, *, letter: str, live: bool) -> None:
    """Show a dead letter: attempts, last answer, target and payload."""

    def parts(found: Mapping[str, Any]) -> Sequence[RenderableType]:
        attempts = found.get("attempts")
        tables = [table_of(session, attempts, ATTEMPTS)] if attempts else []
        return [card_of(session, found, CARD), *tables]

    path = f"{PATH}/{quote(letter, safe='/')}"
    show_whole(session, lambda: session.client().request("GET", path), parts, live=live)


@dead_letters.command("redrive")
@click.argument("letters", nargs=-1, metavar="[LAUNCH]...")
@click.option("--payload", metavar="FILE", help="Instead of what each had; `-` is standard input.")
@click.option("--per-minute", type=click.IntRange(1), metavar="N", help="So many a minute.")
@many_options
@shared_options
@pass_session
def redrive_letters(
    session: Context,
    /,
    *,
    letters: tuple[str, ...],
    payload: str | None,
    per_minute: int | None,
    **given: Any,  # noqa: ANN401 - the options of many_options
) -> None:
    """Give dead letters another life: those named, or all that the options describe."""
    body: dict[str, Any] = {} if per_minute is None else {"per_minute": per_minute}
    if payload is not None:
        body["payload"] = read_document(payload)
    _many(session, "redrive", wanted(session, letters, given), body, given)


@dead_letters.command("purge")
@click.argument("letters", nargs=-1, metavar="[LETTER]...")
@click.option("--undecodable", is_flag=True, help="Messages, with an operator's key, not launches.")
@many_options
@yes_option
@shared_options
@pass_session
def purge_letters(
    session: Context,
    /,
    *,
    letters: tuple[str, ...],
    undecodable: bool,
    yes: bool,
    **given: Any,  # noqa: ANN401 - the options of many_options
) -> None:
    """Let dead letters show no more; launches stay dead, undecodable messages are deleted."""
    where = wanted(session, letters, given)
    if undecodable:
        where["kind"] = "undecodable"
    if not given["dry_run"]:
        which = ", ".join(letters) if letters else "every one that the options describe"
        confirm(f"Purge dead letters: {which}?", yes=yes)
    _many(session, "purge", where, {}, given)


def _many(
    session: Context, verb: str, where: Mapping[str, Any], body: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:  # fmt: skip
    document = {**body, "filter": where}
    if given["max_count"] is not None:
        document["max_count"] = given["max_count"]
    path = f"{PATH}/{verb}"
    if given["dry_run"]:
        said = session.client().request("POST", path, json={**document, "dry_run": True})
        if session.output == "table":
            session.echo_items(iter(said["items"]), LIST, empty="No dead letters.")
        session.done(f"{said['total']} dead letters.", said)
        return
    made = session.client().request("POST", path, json=document)
    if "purged" in made:
        session.done(f"Purged {made['purged']} of {made['total']} messages.", made)
        return
    if not given["follow"]:
        session.done(
            f"On the way for {made['total']} dead letters;"
            f" `tickrail operations get {made['id']}` shows how far.",
            made,
        )
        return
    ended = watch(session, operation_path(made["id"]), progress)
    session.done(f"Operation {made['id']} is {progress(ended)}.", ended)
    if ended["state"] == "failed" or ended["failed"]:
        raise click.exceptions.Exit(1)
