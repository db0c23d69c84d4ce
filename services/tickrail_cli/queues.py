"""`tickrail queues`: what there is, how much of it runs at once, pauses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.live import show_item, show_items, watch_option
from tickrail_cli.names import QUEUE
from tickrail_cli.near import or_near
from tickrail_cli.output import Column

_PAGE = 500
_NONE = "none"


def rate_text(part: Mapping[str, Any] | None) -> str:
    """A rate such as 600/1m; nothing for none."""
    rate = (part or {}).get("rate")
    return f"{rate['count']}/{rate['per']}" if rate else ""


def _paused(queue: Mapping[str, Any]) -> str:
    mine = queue["tenant"]
    who = [name for name, part in (("everybody", queue), ("you", mine)) if part and part["paused"]]
    return " and ".join(who)


def _mine(field: str) -> Any:  # noqa: ANN401 - a function of a row
    return lambda queue: (queue["tenant"] or {}).get(field)


def _depth(field: str) -> Any:  # noqa: ANN401 - a function of a row
    return lambda queue: (queue["depth"] or {}).get(field)


LIST = (
    Column("name", "name"),
    Column("targets", lambda q: ", ".join(q["kinds"])),
    Column("paused for", _paused),
    Column("running at most", "max_running"),
    Column("rate", rate_text),
    Column("of yours", _mine("max_running")),
    Column("your rate", lambda q: rate_text(q["tenant"])),
)
CARD = (
    *LIST,
    Column("pause's reason", "paused_reason"),
    Column("your pause's reason", _mine("paused_reason")),
    *(Column(name, _depth(name)) for name in ("due", "later", "queued", "running")),
    Column("version", "version"),
    Column("created", "created_at", "time"),
)


def most_of(text: str) -> int | None:
    """A number, or None for `none`.

    Raises:
        click.BadParameter: it is neither.
    """
    if text == _NONE:
        return None
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number and not {_NONE!r}") from None


def rate_of(text: str) -> dict[str, Any] | None:
    """`600/1m` as a document, or None for `none`.

    Raises:
        click.BadParameter: it is neither.
    """
    if text == _NONE:
        return None
    count, slash, per = text.partition("/")
    if not count.isdigit() or not slash or not per:
        raise click.BadParameter(f"{text!r} is not such as 600/1m, and not {_NONE!r}")
    return {"count": int(count), "per": per}


def limit_options(command: Any) -> Any:  # noqa: ANN401 - a function that click reads
    """The options of what sets limits."""
    for option in (
        click.option("--rate", metavar="N/TIME", help="So many start in a time: 600/1m; none."),
        click.option("--max-running", metavar="N", help="So many run at once; none: any number."),
    ):
        command = option(command)
    return command


def _limits(max_running: str | None, rate: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if max_running is not None:
        found["max_running"] = most_of(max_running)
    if rate is not None:
        found["rate"] = rate_of(rate)
    return found


def queue_path(name: str) -> str:
    """The path of a queue."""
    return f"/v1/queues/{quote(name, safe='')}"


def _on_queue(session: Context, method: str, name: str, rest: str = "", json: object = None) -> Any:  # noqa: ANN401 - any JSON
    """A call about a queue; where there is none of the name, the nearest are named."""
    with or_near(session, "queue", name, "/v1/queues"):
        return session.client().request(method, queue_path(name) + rest, json=json)


@click.group(cls=NearGroup)
def queues() -> None:
    """List queues, limit and pause them.

    With an operator's key for everybody; with a tenant's key, or --tenant, that tenant's part.
    """


@queues.command("list")
@watch_option
@shared_options
@pass_session
def list_queues(session: Context, /, *, live: bool) -> None:
    """List queues and their limits."""
    show_items(
        session,
        lambda: session.client().pages("/v1/queues", {"limit": _PAGE}),
        LIST,
        empty="No queues.",
        live=live,
    )


@queues.command("get")
@click.argument("name", type=QUEUE)
@watch_option
@shared_options
@pass_session
def get_queue(
    session: Context,
    /,
    *,
    name: str,
    live: bool,
) -> None:
    """Show one queue, and how much waits and runs there."""
    show_item(session, lambda: _on_queue(session, "GET", name), CARD, live=live)


@queues.command("create")
@click.argument("name", type=QUEUE)
@click.option("--kind", "kinds", multiple=True, required=True, help="A kind of target it serves.")
@limit_options
@shared_options
@pass_session
def create_queue(
    session: Context,
    /,
    *,
    name: str,
    kinds: tuple[str, ...],
    max_running: str | None,
    rate: str | None,
) -> None:
    """Make a queue; for operators. A worker reads it where it is told so at its start."""
    answer = session.client().request(
        "PUT",
        queue_path(name),
        json={"kinds": list(kinds), **_limits(max_running, rate)},
        headers={"If-None-Match": "*"},
    )
    session.done(
        f"Made {name}. Its topics are made when a scheduler or a worker of it starts.", answer
    )


@queues.command("set")
@click.argument("name", type=QUEUE)
@click.option("--kind", "kinds", multiple=True, help="The kinds it serves, in place of those now.")
@limit_options
@shared_options
@pass_session
def set_queue(
    session: Context,
    /,
    *,
    name: str,
    kinds: tuple[str, ...],
    max_running: str | None,
    rate: str | None,
) -> None:
    """Set limits: for everybody, or of a tenant."""
    document = _limits(max_running, rate) | ({"kinds": list(kinds)} if kinds else {})
    if not document:
        raise click.UsageError("say what to set: --max-running, --rate, --kind")
    answer = _on_queue(session, "PATCH", name, json=document)
    part = answer["tenant"] or answer
    most = "any number" if part["max_running"] is None else part["max_running"]
    said = rate_text(part) or "any rate"
    session.done(f"Set {name}: {most} running at once, {said}.", answer)


@queues.command("pause")
@click.argument("name", type=QUEUE)
@click.option("--reason", default="", help="Why, for those who look.")
@shared_options
@pass_session
def pause_queue(session: Context, /, *, name: str, reason: str) -> None:
    """Start nothing more of a queue; what runs goes on."""
    document = {"reason": reason}
    answer = _on_queue(session, "POST", name, "/pause", json=document)
    session.done(f"Paused {name} for {_paused(answer)}.", answer)


@queues.command("resume")
@click.argument("name", type=QUEUE)
@shared_options
@pass_session
def resume_queue(session: Context, /, *, name: str) -> None:
    """Let a paused queue go on."""
    answer = _on_queue(session, "POST", name, "/resume")
    still = _paused(answer)
    session.done(f"Resumed {name}{f'; it is paused for {still}' if still else ''}.", answer)


@queues.command("delete")
@click.argument("name", type=QUEUE, nargs=-1, required=True)
@yes_option
@shared_options
@pass_session
def delete_queue(session: Context, /, *, name: tuple[str, ...], yes: bool) -> None:
    """Delete queues that no job and no open launch is in; for operators."""
    confirm(f"Delete {named('queue', name)}?", yes=yes)
    for one in name:
        session.client().request("DELETE", queue_path(one))
        session.done(f"Deleted {one}.")
