"""`tickrail migrate` and `tickrail bootstrap`: set up the database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import click

from tickrail.core.clock import SystemClock
from tickrail.core.errors import InvalidInputError
from tickrail.core.keys import SCOPES
from tickrail.store import bootstrap as first_key
from tickrail.store import migrate as migrations
from tickrail_cli import home
from tickrail_cli.config import FLAGS, settings_options
from tickrail_cli.context import Context, options_of_all, pass_session

ROLES = {"api": "tickrail_api", "engine": "tickrail_engine"}
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("migrate")
@settings_options(*FLAGS["migrate"])
@click.option(
    "--half",
    type=click.Choice(get_args(migrations.Half)),
    help="For an upgrade without a stop: `pre` adds what the new version needs, before its first"
    " process; `post` takes away what only the old one used, after its last. Both without.",
)
@click.option(
    "--api-password-file",
    "api_file",
    type=_FILE,
    metavar="FILE",
    help="Give the role tickrail_api the password in this file.",
)
@click.option(
    "--engine-password-file",
    "engine_file",
    type=_FILE,
    metavar="FILE",
    help="Give the role tickrail_engine the password in this file.",
)
@options_of_all
@pass_session
def migrate(
    session: Context,
    /,
    *,
    half: migrations.Half | None,
    api_file: Path | None,
    engine_file: Path | None,
    **flags: object,
) -> None:
    """Bring the database to this version; needs the owner's connection."""
    settings = session.settings(flags)
    passwords = {
        ROLES[name]: file.read_text("utf-8").strip()
        for name, file in (("api", api_file), ("engine", engine_file))
        if file is not None
    }
    applied = migrations.migrate(
        settings.database_url,
        partitions=settings.partitions,
        kafka_partitions=settings.topic_partitions,
        half=half,
    )
    if passwords:
        migrations.set_passwords(settings.database_url, passwords)
    answer = {"applied": applied, "passwords": sorted(passwords)}
    said = f"Applied {', '.join(applied)}." if applied else "The database is up to date."
    given = f" Passwords are set for {', '.join(sorted(passwords))}." if passwords else ""
    session.done(said + given, answer)


@click.command("bootstrap")
@settings_options(*FLAGS["bootstrap"])
@click.option(
    "--tenant",
    metavar="NAME",
    help="The key's tenant, made where it is not there yet; an operator's key without.",
)
@click.option(
    "--scopes",
    default=",".join(SCOPES),
    show_default=True,
    metavar="LIST",
    help="What the key may do.",
)
@click.option(
    "--allow",
    default="",
    metavar="KINDS",
    help="Kinds of target that the queue `default` is to serve too, such as command,noop.",
)
@options_of_all
@pass_session
def bootstrap(
    session: Context, /, *, tenant: str | None, scopes: str, allow: str, **flags: object
) -> None:
    """Make an API key, straight in the database; needs the owner's connection.

    Where `tickrail up` runs on this machine, in this data folder, its own is used.
    The key is shown once: only a hash of it is kept.
    """
    settings = session.settings(flags)
    try:
        made = first_key.bootstrap(
            home.owner_url(settings),
            SystemClock(),
            tenant=tenant,
            scopes=_words(scopes),
            allow=_words(allow),
            pepper=settings.key_pepper,
        )
    except InvalidInputError as e:
        problems = [replace(p, pointer=p.pointer.replace("/", "--", 1)) for p in e.problems]
        raise InvalidInputError(e.detail, problems) from None
    answer = {
        "key": made.token,
        "key_id": made.key_id,
        "tenant": None if made.tenant is None else str(made.tenant),
        "tenant_created": made.tenant_created,
        "scopes": _words(scopes),
        "default_queue_serves": list(made.kinds),
    }
    whose = "an operator" if tenant is None else f"tenant {tenant}"
    new = " (made now)" if made.tenant_created else ""
    session.done(
        f"API key of {whose}{new}, shown this once:\n\n  {made.token}\n\n"
        "Use it with --key, or: export TICKRAIL_API_KEY=<the key>",
        answer,
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
