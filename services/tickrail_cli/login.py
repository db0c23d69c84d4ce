"""`tickrail login`, `logout` and `config`: which API, with which key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import click

from tickrail.sdk.client import ApiError, Client
from tickrail_cli import profiles
from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.endpoint import PROFILE, masked
from tickrail_cli.output import Column

_PROBE = "/v1/jobs"
_UNAUTHENTICATED, _FORBIDDEN = 401, 403
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_KEY = 16 * 1024
CARD = (
    Column("setting", "setting"),
    Column("value", "value"),
    Column("from", "from"),
)


@click.command("login")
@shared_options
@pass_session
def login(session: Context, /) -> None:
    """Store an API's address and key as a profile, which is used from then on.

    The address is --url, or asked for. The key is asked for without being shown, or read from
    standard input; it is tried before it is stored, in a file that only you can read. --profile
    names the profile (default).
    """
    name = session.profile or session.environ.get(PROFILE) or profiles.USUAL
    if not profiles.NAME.fullmatch(name):
        raise click.UsageError(f"--profile {name!r}: 1 to 64 of letters, digits, '.', '_', '-'")
    asked = sys.stdin.isatty()
    url = session.flags.get("api_url") or session.environ.get("TICKRAIL_API_URL")
    if not url and not asked:
        raise click.UsageError("give the API's address with --url")
    url = session.settings({"api_url": url or click.prompt("The API's address", err=True)}).api_url
    key = session.flags.get("api_key")
    if not key and asked:
        key = click.prompt("Its API key", hide_input=True, err=True)
    key = str(key or sys.stdin.readline(_LONGEST_KEY)).strip()
    if not key:
        raise click.ClickException("there is no key on standard input")
    with Client(url, key, session.settings().api_timeout) as client:
        _try(client)
    stored = profiles.read_profiles(session.environ)
    changed = stored.with_profile(name, profiles.Profile(url, key))
    file = profiles.write_profiles(session.environ, changed)
    session.done(
        f"Logged in at {url} as the profile {name}, with the key {masked(key)}; it is in {file}.",
        {"profile": name, "api_url": url, "key": masked(key), "file": str(file)},
    )
    session.flags.clear()
    if session.endpoint().url != url:
        session.note(
            f"here, {session.endpoint().url_from} says another API; --profile {name} or"
            f" {PROFILE}={name} uses this one"
        )
    if urlsplit(url).scheme == "http" and urlsplit(url).hostname not in _HERE:
        session.note("the key goes over the network unencrypted: the address begins with http:")


def _try(client: Client) -> None:
    """Try a key.

    Raises:
        click.ClickException: the API does not know it.
        ApiError, UnreachableError: something else is wrong.
    """
    try:
        client.request("GET", _PROBE, params={"limit": 1})
    except ApiError as e:
        if e.status == _UNAUTHENTICATED:
            raise click.ClickException(
                f"{client.url} does not take this key: {e}; nothing was stored"
            ) from None
        if e.status != _FORBIDDEN:  # a key may be for something else than to read jobs
            raise


@click.command("logout")
@click.option("--all", "everything", is_flag=True, help="Forget every profile.")
@shared_options
@pass_session
def logout(session: Context, /, *, everything: bool) -> None:
    """Forget a stored profile: the one of --profile, or the one in use.

    The key itself stays valid; `tickrail keys revoke` ends it.
    """
    stored = profiles.read_profiles(session.environ)
    name = session.profile or session.environ.get(PROFILE) or stored.current
    if everything:
        names, left = sorted(stored.found), profiles.Profiles()
    elif name is None:
        raise click.ClickException("no profile is in use; name one with --profile")
    else:
        stored.get(name)
        names, left = [name], stored.without(name)
    profiles.write_profiles(session.environ, left)
    session.done(f"Forgot {', '.join(names) or 'nothing'}.", {"forgot": names})


@click.command("config")
@click.option("--use", "used", metavar="PROFILE", help="Use this profile from now on.")
@shared_options
@pass_session
def config(session: Context, /, *, used: str | None) -> None:
    """Show which API and key are used, and where each comes from.

    A value is that of the first that says it: flags (--profile among them), TICKRAIL_* variables
    (TICKRAIL_PROFILE among them), the profile of the last login, tickrail.toml, what `tickrail up`
    keeps in this folder. Where `up` has made an installation in this folder and tickrail.toml names
    none, a login to another one counts only by --profile or TICKRAIL_PROFILE. A tickrail.toml that
    was found here, not named, may bring its own address and key; a key of yours is not sent to its
    address, unless that is on this machine.
    """
    stored = profiles.read_profiles(session.environ)
    if used is not None:
        stored.get(used)
        profiles.write_profiles(session.environ, profiles.Profiles(stored.found, used))
        session.done(f"The profile {used} is used from now on.", {"profile": used})
        return
    rows = list(_rows(session, stored))
    session.echo_items(rows, CARD, empty="")
    if refused := session.endpoint().refused:
        session.warn(refused)


def _rows(session: Context, stored: profiles.Profiles) -> list[Mapping[str, Any]]:
    found, file = session.endpoint(), session.config_file()
    rows: list[tuple[str, object, str]] = [
        ("api_url", found.url, found.url_from),
        ("api_key", masked(found.key), found.key_from),
        ("tenant", session.tenant or "the key's", "--tenant" if session.tenant else "the key"),
        ("settings file", str(file) if file else "none", "here"),
    ]
    where = str(profiles.file_of(session.environ))
    rows += [
        (f"profile {name}{' (in use)' if name == stored.current else ''}", profile.url, where)
        for name, profile in sorted(stored.found.items())
    ]
    return [{"setting": a, "value": b, "from": c} for a, b, c in rows]
