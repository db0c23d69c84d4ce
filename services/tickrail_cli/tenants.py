"""`tickrail tenants`: who there is, and what operators set of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import click

from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import read_document
from tickrail_cli.keys import KEYS, SCOPES, made_text
from tickrail_cli.live import show_item, show_items, watch_option
from tickrail_cli.names import TENANT
from tickrail_cli.near import or_near
from tickrail_cli.output import Column
from tickrail_cli.queues import most_of
from tickrail_cli.usage import read_quotas

F = TypeVar("F", bound=Callable[..., Any])
_PAGE = 500
_KEPT_OF_NAME = 107
"""So much of its name is kept by a deleted tenant whose name another one has."""
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
    Column("why", "state_reason"),
    Column("since", "state_at", "time"),
    Column("egress", "egress"),
    Column("quotas", "quotas"),
    Column("topics", lambda t: ", ".join(t["kafka_topics"])),
    Column("version", "version"),
)


@click.group(cls=NearGroup)
def tenants() -> None:
    """List and make tenants, set what they may, suspend them; for operators."""


def _path(tenant: str) -> str:
    return f"/v1/tenants/{quote(tenant, safe='')}"


@tenants.command("list")
@click.option(
    "--state", type=click.Choice(("active", "suspended", "deleted")), help="Only tenants in it."
)
@watch_option
@shared_options
@pass_session
def list_tenants(session: Context, /, *, state: str | None, live: bool) -> None:
    """List tenants."""
    params = {"limit": _PAGE, **({} if state is None else {"state": state})}
    show_items(
        session,
        lambda: session.client().pages("/v1/tenants", params),
        LIST,
        empty="No tenants.",
        live=live,
    )


@tenants.command("get")
@click.argument("tenant", type=TENANT)
@watch_option
@shared_options
@pass_session
def get_tenant(session: Context, /, *, tenant: str, live: bool) -> None:
    """Show one tenant, by name or id."""
    show_item(session, lambda: _find(session, tenant), CARD, live=live)


def _settings(command: F) -> F:
    """The options of what is set of a tenant."""
    for option in (
        click.option(
            "--egress", metavar="FILE", help="Lists of what its targets may reach; - for stdin."
        ),
        click.option("--kafka-topic", "topics", multiple=True, help="A topic targets may send to."),
        click.option("--max-running", metavar="N", help="So many of its launches at once; none."),
        click.option("--weight", type=click.IntRange(1, 100), help="Its share of turns."),
    ):
        command = option(command)
    return command


@tenants.command("create")
@click.argument("name")
@_settings
@click.option("--with-key", is_flag=True, help="Make its first API key, with every scope, too.")
@shared_options
@pass_session
def create_tenant(
    session: Context,
    /,
    *,
    name: str,
    with_key: bool,
    weight: int | None,
    max_running: str | None,
    topics: tuple[str, ...],
    egress: str | None,
) -> None:
    """Make a tenant; with --with-key also its first key, which is shown once."""
    document: dict[str, Any] = {"name": name}
    if weight is not None:
        document["weight"] = weight
    if max_running is not None:
        document["max_running"] = most_of(max_running)
    if topics:
        document["kafka_topics"] = list(topics)
    if egress is not None:
        document["egress"] = read_document(egress)
    tenant = session.client().request("POST", "/v1/tenants", json=document)
    said = f"Made the tenant {name} ({tenant['id']})"
    if not with_key:
        more = f"`tickrail --tenant {name} keys create NAME --scope all` makes its first key."
        session.done(f"{said}. {more}", tenant)
        return
    first = {"name": "first", "scopes": list(SCOPES), "description": "made with the tenant"}
    key = session.client().with_tenant(tenant["id"]).request("POST", KEYS, json=first)
    session.done(made_text(f"{said} and its key {key['id']}", key), {**tenant, "key": key})


@tenants.command("suspend")
@click.argument("tenant", type=TENANT)
@click.option("--reason", default="", help="Why, for those who look.")
@yes_option
@shared_options
@pass_session
def suspend_tenant(session: Context, /, *, tenant: str, reason: str, yes: bool) -> None:
    """Refuse a tenant's keys and start nothing more of it; what runs ends."""
    confirm(f"Suspend {named('tenant', [tenant])}?", yes=yes)
    answer = session.client().request("POST", f"{_path(tenant)}/suspend", json={"reason": reason})
    session.done(f"Suspended {answer['name']}.", answer)


@tenants.command("resume")
@click.argument("tenant", type=TENANT)
@click.option("--reason", default="", help="Why, for those who look.")
@shared_options
@pass_session
def resume_tenant(session: Context, /, *, tenant: str, reason: str) -> None:
    """Let a tenant go on that was suspended or deleted.

    A deleted one whose name a new tenant has is called NAME.deleted-<part of its id>.
    """
    found = _find(session, tenant)
    if found["state"] == "active":
        session.done(f"{found['name']} is active already: nothing was changed.", found)
        for former in _former(session, found["name"]):
            session.note(
                f"{former} had this name before and is deleted; `tickrail tenants resume {former}`"
                " brings it back"
            )
        return
    answer = session.client().request("POST", f"{_path(tenant)}/resume", json={"reason": reason})
    session.done(f"Resumed {answer['name']}.", answer)


def _find(session: Context, tenant: str) -> Any:  # noqa: ANN401 - any JSON
    with or_near(session, "tenant", tenant, "/v1/tenants"):
        return session.client().request("GET", _path(tenant))


def _former(session: Context, name: str) -> list[str]:
    """The deleted tenants that had this name, as they are called now."""
    begin = f"{name[:_KEPT_OF_NAME]}.deleted-"
    deleted = session.client().pages("/v1/tenants", {"limit": _PAGE, "state": "deleted"})
    return [t["name"] for t in deleted if t["name"].startswith(begin)]


@tenants.command("delete")
@click.argument("tenant", type=TENANT)
@yes_option
@shared_options
@pass_session
def delete_tenant(session: Context, /, *, tenant: str, yes: bool) -> None:
    """Delete a tenant: its keys and jobs stop; `resume` brings it back, not what waited.

    By its id at any time; by its name until a new tenant is made with it.
    """
    found = _find(session, tenant)
    back = f"`tickrail tenants resume {found['id']}` brings it back"
    said = f"Its keys and jobs stop, what waits is cancelled; {back} without that."
    confirm(f"{said} Delete {named('tenant', [tenant])}?", yes=yes)
    session.client().request("DELETE", _path(found["id"]))
    session.done(f"Deleted {found['name']}; {back}.")


@tenants.command("set")
@click.argument("tenant", type=TENANT)
@click.option("--weight", type=click.IntRange(1, 100), help="Its share of turns among tenants.")
@click.option("--max-running", metavar="N", help="So many of its launches run at once; none.")
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="QUOTA=VALUE",
    help="jobs=100, jobs=unlimited; jobs= for what everybody may.",
)
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
    quotas: tuple[str, ...],
    topics: tuple[str, ...],
    no_kafka_topics: bool,
    egress: str | None,
) -> None:
    """Set a tenant's weight, limit and quotas, and what its targets may reach."""
    document: dict[str, Any] = {}
    if weight is not None:
        document["weight"] = weight
    if max_running is not None:
        document["max_running"] = most_of(max_running)
    if quotas:
        document["quotas"] = read_quotas(quotas)
    if topics or no_kafka_topics:
        document["kafka_topics"] = list(topics)
    if egress is not None:
        # A patch would merge it into the lists that there are.
        lists = read_document(egress)
        document["egress"] = (
            dict.fromkeys(("allow", "deny", "only")) | lists if isinstance(lists, dict) else lists
        )
    if not document:
        raise click.UsageError(
            "say what to set: --weight, --max-running, --quota, --kafka-topic, --egress"
        )
    answer = session.client().request("PATCH", _path(tenant), json=document)
    session.done(f"Set {answer['name']}, version {answer['version']}.", answer)
