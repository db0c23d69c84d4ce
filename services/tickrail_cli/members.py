"""`tickrail system members | partitions | drain | undrain`: who owns what."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import click

from tickrail.core.clock import SystemClock
from tickrail.core.durations import format_duration, parse_duration
from tickrail_cli.context import PATIENCE, Context, pass_session, shared_options
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.output import Column

MEMBERS_PATH = "/v1/system/members"
MEMBERS = (
    Column("name", "name"),
    Column("state", "state", "state"),
    Column("partitions", "partitions"),
    Column("weight", lambda m: None if m["weight"] is None else f"{m['weight']:g}"),
    Column("lease left", "lease_remaining"),
    Column("member since", "since", "time"),
    Column("identity", "identity"),
    Column("drained since", "drain.since", "time"),
    Column("by", "drain.by"),
)
PARTITIONS = (
    Column("partition", "partition"),
    Column("state", "state", "state"),
    Column("owner", "owner.name"),
    Column("identity", "owner.identity"),
    Column("epoch", "epoch"),
    Column("in etcd", "claimed_epoch"),
    Column("lease left", "lease_remaining"),
    Column("taken", "taken_at", "time"),
    Column("zone data", "tzdata"),
)
IGNORED = (
    "every member is drained, so drains have no effect: the members share all partitions until"
    " one drain is ended with `tickrail system undrain`"
)
_POLL = 0.1


def _length(_ctx: click.Context, _param: click.Parameter, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as e:
        raise click.BadParameter(f"{e}") from None


@click.command()
@watch_option
@shared_options
@pass_session
def members(session: Context, /, *, live: bool) -> None:
    """Show the schedulers that are present, and names that are drained."""
    if live:
        show_items(
            session,
            lambda: session.client().request("GET", MEMBERS_PATH, within=PATIENCE)["items"],
            MEMBERS,
            empty="No scheduler is present.",
            live=True,
        )
        return
    answer = session.client().request("GET", MEMBERS_PATH, within=PATIENCE)
    if session.output != "table":
        session.done("", answer)
        return
    session.echo_items(answer["items"], MEMBERS, empty="No scheduler is present.")
    if answer["drains_ignored"]:
        session.note(IGNORED)


@click.command()
@watch_option
@shared_options
@pass_session
def partitions(session: Context, /, *, live: bool) -> None:
    """Show who owns which partition."""
    show_items(
        session,
        lambda: session.client().pages("/v1/system/partitions", within=PATIENCE),
        PARTITIONS,
        empty="No partitions.",
        live=live,
    )


@click.command()
@click.argument("member")
@click.option(
    "--wait",
    metavar="DURATION",
    callback=_length,
    default="60s",
    show_default=True,
    help="Wait so long until it owns nothing; 0s does not wait.",
)
@shared_options
@pass_session
def drain(session: Context, /, *, member: str, wait: timedelta) -> None:
    """Have MEMBER (name or identity) hand over all it owns and take nothing.

    The drain holds, also over restarts of MEMBER, until `tickrail system undrain`. Exit code 1:
    it owned partitions still when the time was over, or every member is drained: then drains have
    no effect, and partitions go back also to those that were drained before.
    """
    answer = session.client().request("POST", _path(member), within=PATIENCE)
    last = _wait(session, answer, wait) if wait else answer
    left = _left(last["items"])
    name, programs = last["name"], {**last, "next_cursor": None}
    if last["drains_ignored"]:
        session.done(f"{name} is drained.", programs)
        raise click.ClickException(IGNORED)
    if not left:
        session.done(f"{name} is drained and owns nothing.", programs)
    elif not wait:
        session.done(f"{name} is drained and hands over {_count(left)}.", programs)
    else:
        session.done(f"{name} is drained.", programs)
        raise click.ClickException(
            f"{name} owns {_count(left)} still after {format_duration(wait)}; the drain goes on"
        )


@click.command()
@click.argument("member")
@shared_options
@pass_session
def undrain(session: Context, /, *, member: str) -> None:
    """End the drain of MEMBER (name or identity): it gets its partitions back."""
    session.client().request("DELETE", _path(member), within=PATIENCE)
    session.done(f"{member} is not drained.", {"name": member})


def _wait(session: Context, answer: Mapping[str, Any], wait: timedelta) -> Mapping[str, Any]:
    """Ask until the members of the name own nothing, or the time is over; as they then are."""
    name, clock, moment = answer["name"], SystemClock(), threading.Event()
    until = clock.monotonic() + wait.total_seconds()
    last, said = answer, 0
    while _left(last["items"]) and not last["drains_ignored"]:
        left = _left(last["items"])
        if session.output == "table" and left != said:
            click.echo(f"{name} owns {_count(left)} still", err=True)
            said = left
        if clock.monotonic() >= until:
            break
        moment.wait(_POLL)
        found = session.client().request("GET", MEMBERS_PATH)
        items = [m for m in found["items"] if m["name"] == name]
        last = {"name": name, "drains_ignored": found["drains_ignored"], "items": items}
    return last


def _left(items: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(m["partitions"]) for m in items)


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"


def _path(member: str) -> str:
    return f"{MEMBERS_PATH}/{quote(member, safe='')}/drain"
