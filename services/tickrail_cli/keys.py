"""`tickrail keys`: API keys, a tenant's or the operators'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from tickrail.sdk.client import ApiError
from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.live import show_item, show_items, watch_option
from tickrail_cli.output import Column
from tickrail_cli.profiles import replace_key

KEYS = "/v1/api-keys"
SCOPES = ("read", "run", "write", "admin")
STATES = ("active", "expired", "revoked")
_PAGE = 500
_NOT_FOUND = 404
_ID = re.compile(r"(?:trk_)?([a-z0-9]{8,32})(?:_\S*)?")
LIST = (
    Column("id", "id"),
    Column("name", "name"),
    Column("state", "state", "state"),
    Column("scopes", lambda k: ", ".join(k["scopes"])),
    Column("last used", "last_used_at", "time"),
    Column("expires", "expires_at", "time"),
    Column("made", "created_at", "time"),
)
CARD = (
    *LIST,
    Column("description", "description"),
    Column("requests per second", "requests_per_second"),
    Column("made by", "created_by"),
    Column("revoked", "revoked_at", "time"),
    Column("replaced by", "replaced_by"),
)


@click.group(cls=NearGroup)
def keys() -> None:
    """List, make, rotate and revoke API keys.

    With a tenant's key, or --tenant, that tenant's; with an operator's key the operators'. KEY is a
    key's id, what it begins with (trk_<id>), or its name where only one valid key has it.
    """


@keys.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only keys in it.")
@watch_option
@shared_options
@pass_session
def list_keys(session: Context, /, *, state: str | None, live: bool) -> None:
    """List keys, the newest first; their secrets are shown to nobody."""
    params = {"limit": _PAGE, **({} if state is None else {"state": state})}
    show_items(
        session, lambda: session.client().pages(KEYS, params), LIST, empty="No keys.", live=live
    )


@keys.command("get")
@click.argument("key")
@watch_option
@shared_options
@pass_session
def get_key(session: Context, /, *, key: str, live: bool) -> None:
    """Show one key."""
    show_item(session, lambda: _find(session, key), CARD, live=live)


@keys.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, required=True, type=click.Choice((*SCOPES, "all")),
    help="What it may do; again for more.",
)  # fmt: skip
@click.option("--expires-in", metavar="TIME", help="For how long it is valid: 90d.")
@click.option("--expires-at", metavar="INSTANT", help="Until when it is valid.")
@click.option("--rate", type=click.IntRange(1, 10_000), help="Requests in a second at most.")
@click.option("--description", help="What it is for.")
@shared_options
@pass_session
def create_key(
    session: Context,
    /,
    *,
    name: str,
    scopes: tuple[str, ...],
    expires_in: str | None,
    expires_at: str | None,
    rate: int | None,
    description: str | None,
) -> None:
    """Make a key. It is shown once: keep it where secrets are kept."""
    wanted = {
        "expires_in": expires_in,
        "expires_at": expires_at,
        "requests_per_second": rate,
        "description": description,
    }
    document = {"name": name, "scopes": scopes_of(scopes)} | {
        field: value for field, value in wanted.items() if value is not None
    }
    answer = session.client().request("POST", KEYS, json=document)
    session.done(made_text(f"Made the key {name} ({answer['id']})", answer), answer)


@keys.command("rotate")
@click.argument("key", required=False)
@click.option("--grace", metavar="TIME", help="How long the old one stays valid; a day.")
@shared_options
@pass_session
def rotate_key(session: Context, /, *, key: str | None, grace: str | None) -> None:
    """Put a new key in the place of KEY, or of the key in use. It is shown once."""
    old = _find(session, key or _own(session))
    document = {} if grace is None else {"grace": grace}
    answer = session.client().request("POST", f"{_path(old['id'])}/rotate", json=document)
    until = session.client().request("GET", _path(old["id"]))["expires_at"]
    said = f"Rotated {old['name']}; {old['id']} is valid until {session.time(until)}"
    session.done(made_text(said, answer), answer)
    if key is not None:
        return
    profile = session.endpoint().profile
    if profile is None or answer["token"] is None:
        session.note("the key in use is still the old one; `tickrail login` stores the new one")
    else:
        replace_key(session.environ, profile, answer["token"])
        session.done(f"The profile {profile} uses it from now on.")


@keys.command("revoke")
@click.argument("key", nargs=-1, required=True)
@yes_option
@shared_options
@pass_session
def revoke_key(session: Context, /, *, key: tuple[str, ...], yes: bool) -> None:
    """End keys now, within two seconds everywhere."""
    found = [_find(session, one) for one in key]
    names = [f"{k['name']} ({k['id']})" for k in found]
    confirm(f"Revoke {named('key', names)}?", yes=yes)
    for one in found:
        session.client().request("DELETE", _path(one["id"]))
        session.done(f"Revoked {one['name']} ({one['id']}).")


def scopes_of(given: tuple[str, ...]) -> list[str]:
    """Scopes from what was written, `all` for each of them."""
    return [s for s in SCOPES if s in given or "all" in given]


def made_text(said: str, answer: Mapping[str, Any]) -> str:
    """A sentence, and the key."""
    if answer["token"] is None:
        return (
            f"{said}. Its secret was in an answer that did not arrive;"
            f" `tickrail keys rotate {answer['id']} --grace 0s` makes another."
        )
    return f"{said}. The key is shown here only:\n{answer['token']}"


def _path(key_id: str) -> str:
    return f"{KEYS}/{quote(key_id, safe='')}"


def _own(session: Context) -> str:
    """The id of the key in use.

    Raises:
        click.UsageError: there is none.
    """
    found = _ID.fullmatch(session.endpoint().key)
    if found is None:
        raise click.UsageError("say which KEY: no API key is in use")
    return found[1]


def _find(session: Context, key: str) -> Mapping[str, Any]:
    """A key by its id or its name.

    Raises:
        click.ClickException: there is none, or more than one.
    """
    matched = _ID.fullmatch(key)
    if matched is not None:
        try:
            found: Mapping[str, Any] = session.client().request("GET", _path(matched[1]))
        except ApiError as e:
            if e.status != _NOT_FOUND:
                raise
        else:
            return found
    active = session.client().pages(KEYS, {"limit": _PAGE, "state": "active"})
    fitting = [k for k in active if k["name"] == key]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        ids = ", ".join(str(k["id"]) for k in fitting)
        raise click.ClickException(f"{len(fitting)} keys are called {key!r}: {ids}; name an id")
    raise click.ClickException(f"there is no key {key[:60]!r}; `tickrail keys list` shows them")
