"""`tickrail tenants`: what operators set of tenants."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import read_document
from tickrail_cli.output import Column
from tickrail_cli.queues import most_of

_PAGE = 500
LIST = (
    Column("name", "name"),
    Column("state", "state", "state"),
    Column("weight", "weight"),
    Column("running at most", "max_running"),
    Column("created", "created_at", "time"),
    Column("id", "id"),
)
CARD = (
    *LIST,
    Column("egress", "egress"),
    Column("topics", lambda t: ", ".join(t["kafka_topics"])),
    Column("version", "version"),
)


@click.group(cls=NearGroup)
def tenants() -> None:
    """List tenants and set what they may; for operators."""


@tenants.command("list")
@shared_options
@pass_session
def list_tenants(session: Context, /) -> None:
    """List tenants."""
    found = session.client().pages("/v1/tenants", {"limit": _PAGE})
    session.echo_items(found, LIST, empty="No tenants.")


@tenants.command("get")
@click.argument("tenant")
@shared_options
@pass_session
def get_tenant(session: Context, /, *, tenant: str) -> None:
    """Show one tenant, by name or id."""
    found = session.client().request("GET", f"/v1/tenants/{quote(tenant, safe='')}")
    session.echo_item(found, CARD)


@tenants.command("set")
@click.argument("tenant")
@click.option("--weight", type=click.IntRange(1, 100), help="Its share of turns among tenants.")
@click.option("--max-running", metavar="N", help="So many of its launches run at once; none.")
@click.option("--kafka-topic", "topics", multiple=True, help="A topic its targets may send to.")
@click.option("--no-kafka-topics", is_flag=True, help="Its targets may send to none.")
@click.option("--egress", metavar="FILE", help="Lists of what its targets may reach; - for stdin.")
@shared_options
@pass_session
def set_tenant(
    session: Context,
    /,
    *,
    tenant: str,
    weight: int | None,
    max_running: str | None,
    topics: tuple[str, ...],
    no_kafka_topics: bool,
    egress: str | None,
) -> None:
    """Set a tenant's weight and limit, and what its targets may reach."""
    document: dict[str, Any] = {}
    if weight is not None:
        document["weight"] = weight
    if max_running is not None:
        document["max_running"] = most_of(max_running)
    if topics or no_kafka_topics:
        document["kafka_topics"] = list(topics)
    if egress is not None:
        # A patch would merge it into the lists that there are.
        lists = read_document(egress)
        document["egress"] = (
            dict.fromkeys(("allow", "deny", "only")) | lists if isinstance(lists, dict) else lists
        )
    if not document:
        raise click.UsageError("say what to set: --weight, --max-running, --kafka-topic, --egress")
    path = f"/v1/tenants/{quote(tenant, safe='')}"
    answer = session.client().request("PATCH", path, json=document)
    session.done(f"Set {answer['name']}, version {answer['version']}.", answer)
