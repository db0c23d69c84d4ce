"""`tickrail secrets`: values that targets name and nobody reads back."""

from __future__ import annotations

import sys
from urllib.parse import quote

import click

from tickrail.sdk.client import ApiError
from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import read_text
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.names import SECRET
from tickrail_cli.near import nearest_names
from tickrail_cli.output import Column

_PAGE = 500
_NOT_FOUND = 404
LIST = (Column("name", "name"), Column("changed", "updated_at", "time"))


@click.group(cls=NearGroup)
def secrets() -> None:
    """List, set and delete secrets: what targets name as {"secret": "<name>"}."""


def secret_path(name: str) -> str:
    """The path of a secret."""
    return f"/v1/secrets/{quote(name, safe='')}"


@secrets.command("list")
@watch_option
@shared_options
@pass_session
def list_secrets(session: Context, /, *, live: bool) -> None:
    """List secrets by name; values are not shown to anybody."""
    show_items(
        session,
        lambda: session.client().pages("/v1/secrets", {"limit": _PAGE}),
        LIST,
        empty="No secrets. `tickrail secrets set NAME` makes one.",
        live=live,
    )


@secrets.command("set")
@click.argument("name", type=SECRET)
@click.option("-f", "--file", metavar="FILE", help="Read the value from a file; - for stdin.")
@shared_options
@pass_session
def set_secret(session: Context, /, *, name: str, file: str | None) -> None:
    """Keep a value under NAME: read from --file, from standard input, or asked for.

    A newline at the value's end is left out. The value is never a word of the command line, which
    every user of a machine can read.
    """
    if file is None and sys.stdin.isatty():
        value = click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
    else:
        value = read_text(file or "-").removesuffix("\n").removesuffix("\r")
    answer = session.client().request("PUT", secret_path(name), json={"value": value})
    session.done(f"Set {answer['name']}.", answer)


@secrets.command("delete")
@click.argument("name", type=SECRET, nargs=-1, required=True)
@yes_option
@shared_options
@pass_session
def delete_secret(session: Context, /, *, name: tuple[str, ...], yes: bool) -> None:
    """Delete secrets that no job uses."""
    confirm(f"Delete {named('secret', name)}?", yes=yes)
    for one in name:
        # The API answers the same where there is none: it was deleted, or its name is misspelt.
        if _is_there(session, one):
            session.client().request("DELETE", secret_path(one))
            session.done(f"Deleted {one}.")
        else:
            near = nearest_names(session, one, "/v1/secrets")
            session.done(f"There is no secret {one}: nothing to delete{near or '.'}")


def _is_there(session: Context, name: str) -> bool:
    try:
        session.client().request("GET", secret_path(name))
    except ApiError as e:
        if e.status != _NOT_FOUND:
            raise
        return False
    return True


@secrets.command("new-key")
@shared_options
@pass_session
def new_key(session: Context, /) -> None:
    """Print a new key for TICKRAIL_SECRET_KEYS."""
    from tickrail.store import cipher  # noqa: PLC0415 - the other commands do without it

    key = cipher.new_key()
    session.done(key, {"key": key})


@secrets.command("rekey")
@click.option(
    "--database-url", metavar="URL", help="The owner's connection [TICKRAIL_DATABASE_URL]."
)
@shared_options
@pass_session
def rekey(session: Context, /, *, database_url: str | None) -> None:
    """Encrypt every secret anew with the first of TICKRAIL_SECRET_KEYS, straight in the database.

    After it, the other keys are needed no more. Where `tickrail up` runs on this machine, in this
    data folder, its database and keys are used.
    """
    from tickrail.store.cipher import SecretCipher  # noqa: PLC0415 - see above
    from tickrail.store.rekey import rekey_secrets  # noqa: PLC0415 - see above
    from tickrail_cli import home  # noqa: PLC0415 - see above

    settings = session.settings({"database_url": database_url})
    keys = settings.secret_keys or home.secret_keys(settings.data_dir)
    done, kept = rekey_secrets(home.owner_url(settings), SecretCipher(keys))
    session.done(
        f"Encrypted {done} secret{'s' * (done != 1)} anew; {kept} had the first key already.",
        {"encrypted": done, "current": kept},
    )
