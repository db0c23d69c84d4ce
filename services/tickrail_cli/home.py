"""What `tickrail up` keeps in its data folder: passwords, the API's port, the key.

`client.toml` is where the command line looks for the API's address and key when neither flag,
variable nor settings file names them.
"""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the client's commands need it only where there is such a file
    from tickrail.runtime.settings import Settings

KEPT_FILE = "up.json"
CLIENT_FILE = "client.toml"


def write_private(file: Path, text: str) -> None:
    """Replace a file that only its owner may read."""
    fresh = file.with_name(file.name + ".new")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as out:
        out.write(text)
    fresh.replace(file)


def read_kept(folder: Path) -> dict[str, Any]:
    """What was kept; empty where there is nothing, or nothing that can be read."""
    try:
        found = json.loads((folder / KEPT_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(folder: Path, **values: object) -> None:
    """Keep these values beside those that are kept."""
    write_private(folder / KEPT_FILE, json.dumps({**read_kept(folder), **values}, indent=1) + "\n")


def passwords(folder: Path, roles: tuple[str, ...]) -> dict[str, str]:
    """A password for each database role, made once."""
    kept = read_kept(folder).get("passwords")
    found = kept if isinstance(kept, dict) else {}
    made = {role: str(found.get(role) or secrets.token_urlsafe(24)) for role in roles}
    if made != found:
        keep(folder, passwords=made)
    return made


def secret_keys(folder: Path, *, make: bool = False) -> tuple[str, ...]:
    """The keys that secrets are encrypted with; with `make`, the first is made once."""
    kept = read_kept(folder).get("secret_keys")
    found = tuple(str(key) for key in kept) if isinstance(kept, list) else ()
    if make and not found:
        from tickrail.store.cipher import new_key  # noqa: PLC0415 - only `up` makes one

        found = (new_key(),)
        keep(folder, secret_keys=found)
    return found


def write_client(folder: Path, *, api_url: str, api_key: str) -> None:
    """Keep what the command line needs."""
    text = (
        "# Written by `tickrail up`; `tickrail jobs` and the others read it.\n"
        f"api_url = {json.dumps(api_url)}\n"
        f"api_key = {json.dumps(api_key)}\n"
    )
    write_private(folder / CLIENT_FILE, text)


def read_client(folder: Path) -> tuple[str, str] | None:
    """The API's address and key; None where `up` has not kept them."""
    try:
        found = tomllib.loads((folder / CLIENT_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    url, key = found.get("api_url"), found.get("api_key")
    return (url, key) if isinstance(url, str) and isinstance(key, str) else None


def owner_url(settings: Settings) -> str:
    """The owner's connection: as set, or that of the `up` that runs here."""
    if "database_url" not in settings.model_fields_set:
        found = _running(settings)
        if found is not None:
            return found[0]
    return settings.database_url


def servers_of(settings: Settings) -> Settings:
    """With the database (as its owner) and etcd of the `up` that runs here, where neither is set.

    One alone is not taken from there: the two must be of one installation.
    """
    if not settings.model_fields_set & {"database_url", "etcd_endpoints"}:
        found = _running(settings)
        if found is not None:
            url, etcd = found
            return settings.model_copy(update={"database_url": url, "etcd_endpoints": etcd})
    return settings


def _running(settings: Settings) -> tuple[str, tuple[str, ...]] | None:
    """The owner's connection and etcd's endpoints of the `up` that runs in the data folder."""
    if not settings.data_dir.is_dir():
        return None
    from tickrail.local.stack import running  # noqa: PLC0415 - only where `up` may run
    from tickrail.store import provision  # noqa: PLC0415 - as above

    at = running(settings.data_dir)
    if at is None:
        return None
    found = passwords(settings.data_dir, provision.ROLES)
    url = provision.provision(at.postgres_dsn, "tickrail", found).owner
    return url, tuple(at.etcd_endpoints.split(","))
