"""`tickrail usage` and `tickrail quotas`: what a tenant may have, and what it uses of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.live import show_whole, watch_option
from tickrail_cli.output import Column, table_of

USAGE = (
    Column("what", "what"),
    Column("used", "used"),
    Column("limit", "limit"),
    Column("share", "share"),
    Column("again at", "resets_at", "time"),
)
QUOTAS = (Column("quota", "quota"), Column("limit", "limit"))
_NAMES: Mapping[str, str] = {
    "jobs": "jobs",
    "launches_per_minute": "launches this minute",
    "launches_per_day": "launches today (UTC)",
    "running": "running launches",
    "requests": "requests at once",
}


@click.command("usage")
@watch_option
@shared_options
@pass_session
def usage(session: Context, /, *, live: bool) -> None:
    """Show what the tenant uses of its quotas now, this minute and today.

    With an operator's key, `--tenant NAME` says whose.
    """
    show_whole(
        session,
        lambda: session.client().request("GET", "/v1/usage"),
        lambda found: [table_of(session, [_row(name, found[name]) for name in _NAMES], USAGE)],
        live=live,
    )


@click.group(cls=NearGroup, invoke_without_command=True)
@shared_options
@click.pass_context
def quotas(ctx: click.Context, /) -> None:
    """Show what the tenant may have; of an operator, what everybody may."""
    if ctx.invoked_subcommand is None:
        session: Context = ctx.obj
        _show(session, session.client().request("GET", "/v1/quotas"))


@quotas.command("set")
@click.argument("quota", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@shared_options
@pass_session
def set_quotas(session: Context, /, *, quota: tuple[str, ...]) -> None:
    """Set what tenants may have that have no such quota of their own; for operators.

    `jobs=100`, `min_interval=1m`, `launches_per_day=unlimited`; `jobs=` sets it no more. Those of
    one tenant: `tickrail tenants set NAME --quota jobs=100`.
    """
    document = read_quotas(quota)
    _show(session, session.client().request("PATCH", "/v1/quotas", json=document))


@quotas.command("notify")
@click.argument("channel", nargs=-1, metavar="[CHANNEL...]")
@click.option("--none", "nobody", is_flag=True, help="Tell nobody any more.")
@shared_options
@pass_session
def notify(session: Context, /, *, channel: tuple[str, ...], nobody: bool) -> None:
    """Show or set who is told when a quota is used to 80 and to 100 per cent.

    A CHANNEL is `webhook:SECRET` (the secret holds the URL) or `kafka:TOPIC`; those given take the
    place of those that were there.
    """
    if channel and nobody:
        raise click.UsageError("give channels or --none, not both")
    client = session.client()
    if channel or nobody:
        document = {"notify": list(channel)}
        found = client.request("PUT", "/v1/quotas/notify", json=document)
    else:
        found = client.request("GET", "/v1/quotas/notify")
    told = ", ".join(found["notify"]) or "nobody"
    session.done(f"Told at 80 and 100 % of a quota: {told}.", found)


def read_quotas(texts: tuple[str, ...]) -> dict[str, object]:
    """The patch that words such as `jobs=100` say.

    Raises:
        click.UsageError: one of them is none; says what would be right.
    """
    from tickrail.core.quotas import quota_text  # noqa: PLC0415 - the help is to be quick

    try:
        return dict(quota_text(text) for text in texts)
    except ValueError as e:
        raise click.UsageError(str(e)) from None


def _show(session: Context, found: Mapping[str, Any]) -> None:
    if session.output != "table":
        session.done("", found)
        return
    rows = [{"quota": name, "limit": value} for name, value in found.items()]
    session.echo_items(rows, QUOTAS, empty="")


def _row(name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    used, limit = item["used"], item["limit"]
    counted = isinstance(limit, int) and limit and used is not None
    share = f"{used * 100 // limit} %" if counted else None
    return {
        "what": _NAMES[name],
        "used": "not counted" if used is None else used,
        "limit": limit,
        "share": share,
        "resets_at": item["resets_at"],
    }
