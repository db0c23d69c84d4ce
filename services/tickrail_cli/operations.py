"""`tickrail operations`: work on many jobs or dead letters that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import click

from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.output import Column
from tickrail_cli.watching import watch

_PAGE = 500


def rows(operation: Mapping[str, Any]) -> str:
    """What it is about."""
    return "jobs" if operation["kind"].startswith("jobs.") else "dead letters"


def progress(operation: Mapping[str, Any]) -> str:
    """How far it is, in a line."""
    refused = f", {operation['failed']} refused" if operation["failed"] else ""
    return (
        f"{operation['state']}: {operation['done']} of {operation['total']} {rows(operation)},"
        f" {operation['changed']} changed{refused}"
    )


def errors(operation: Mapping[str, Any]) -> str:
    """Why something was not done."""
    said = [
        f"{(e['job'] or {}).get('name', 'operation')}"
        f"{' ' + e['launch'] if e.get('launch') else ''}: {e['detail']}"
        for e in operation["errors"]
    ]
    return "\n".join(said)


LIST = (
    Column("created", "created_at", "time"),
    Column("kind", "kind"),
    Column("state", "state", "state"),
    Column("of", "total"),
    Column("done", "done"),
    Column("changed", "changed"),
    Column("refused", "failed"),
    Column("id", "id"),
)
CARD = (
    Column("id", "id"),
    Column("kind", "kind"),
    Column("request", "request"),
    Column("state", "state", "state"),
    Column("of", "total"),
    Column("done", "done"),
    Column("changed", "changed"),
    Column("refused", "failed"),
    Column("errors", errors),
    Column("by", "created_by"),
    Column("created", "created_at", "time"),
    Column("finished", "finished_at", "time"),
)


def operation_path(operation: str, rest: str = "") -> str:
    """The path of an operation."""
    return f"/v1/operations/{quote(operation, safe='')}{rest}"


@click.group(cls=NearGroup)
def operations() -> None:
    """Read and cancel operations, such as pauses of many jobs or redrives."""


@operations.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@watch_option
@shared_options
@pass_session
def list_operations(
    session: Context,
    /,
    *,
    limit: int,
    live: bool,
) -> None:
    """List operations, the newest first."""
    params = {"limit": min(limit, _PAGE)}
    show_items(
        session,
        lambda: islice(session.client().pages("/v1/operations", params), limit),
        LIST,
        empty="No operations.",
        live=live,
    )


@operations.command("get")
@click.argument("operation")
@click.option("--watch", "follow", is_flag=True, help="Wait until it has ended.")
@shared_options
@pass_session
def get_operation(session: Context, /, *, operation: str, follow: bool) -> None:
    """Show an operation: how far it is."""
    path = operation_path(operation)
    found = watch(session, path, progress) if follow else session.client().request("GET", path)
    session.echo_item(found, CARD)


@operations.command("cancel")
@click.argument("operation", nargs=-1, required=True)
@shared_options
@pass_session
def cancel_operation(session: Context, /, *, operation: tuple[str, ...]) -> None:
    """Cancel operations: nothing further is touched, what was done stays."""
    for one in operation:
        answer = session.client().request("POST", operation_path(one, "/cancel"))
        session.done(
            f"Cancelled {one} after {answer['done']} of {answer['total']} {rows(answer)}.", answer
        )
