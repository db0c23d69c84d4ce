"""Which API the command line speaks to, with which key, and where each of the two comes from.

Flags, variables, profiles and a settings file that was named are the user's own. `tickrail.toml`
and the data folder of `up`, found in the working folder, came with it: with a repository of
somebody else's, perhaps. A key of the user's own is not sent to an address that came with the
folder, unless that is on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tickrail_cli import home
from tickrail_cli.profiles import Profiles, read_profiles

if TYPE_CHECKING:
    from pathlib import Path

    from tickrail.runtime.settings import Settings

PROFILE = "TICKRAIL_PROFILE"
_HERE = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Layer:
    """A place that may say an address, a key, or both.

    Attributes:
        source: what people call it.
        url: the address, if it says one.
        key: the key, if it says one.
        pair: whether the key is for that address alone: no other server is shown it.
        profile: the stored profile that it is, if it is one.
        found: whether it came with the working folder: the user has not named it.
    """

    source: str
    url: str | None = None
    key: str | None = field(default=None, repr=False)
    pair: bool = False
    profile: str | None = None
    found: bool = False


NOTHING = Layer("the settings file")
"""A settings file that says nothing of the API, or is not there."""


@dataclass(frozen=True)
class Endpoint:
    """An API, the key for it, and where they come from.

    Attributes:
        profile: the one that has the key.
        refused: why nothing is sent there; empty: nothing is against it.
    """

    url: str
    url_from: str
    key: str = field(repr=False)
    key_from: str
    profile: str | None = None
    refused: str = ""


def decide(layers: Sequence[Layer], default: str) -> Endpoint:
    """The first address, and the first key that may be shown to it.

    An address that came with the folder gets no key of the user's own: the one beside it, or none.

    Args:
        layers: the nearest first.
        default: the address where none says one.
    """
    usual = Layer("the default", default)
    at = next((layer for layer in layers if layer.url), usual)
    url = at.url or default
    here = url.rstrip("/")
    keys = [
        layer
        for layer in layers
        if layer.key and (not layer.pair or (layer.url or "").rstrip("/") == here)
    ]
    key = keys[0] if keys else Layer("nowhere")
    refused = ""
    if at.found and not key.found and not key.pair and key.key and not _on_this_machine(url):
        own = at if at.key else Layer("nowhere")
        if not own.key:
            refused = (
                f"The address {url} is that of {at.source}, which came with this folder: the key of"
                f" {key.source} is not sent there. If the address is right, say so: --url {url},"
                f" TICKRAIL_API_URL, `tickrail login --url {url}`, or name the file with --config."
            )
        key = own
    return Endpoint(url, at.source, key.key or "", key.source, key.profile, refused)


def _on_this_machine(url: str) -> bool:
    return _HERE.fullmatch(urlsplit(url).netloc) is not None


def layers_of(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    settings: Settings,
    profiles: Profiles,
    named: str | None,
    local: tuple[str, str] | None,
    file: Layer,
) -> list[Layer]:
    """The places in their order.

    Flags (`--profile` among them) go first, then the environment, then the profile of the last
    login, then the settings file, then what `tickrail up` kept in the data folder. Where `up` has
    kept something, the settings file names no API and the last login was to another one, the
    folder goes before it: who works with an installation in this folder is not to reach another
    unawares.

    Args:
        flags: `api_url` and `api_key`, None where not given.
        environ: the environment.
        settings: all settings.
        profiles: what is stored.
        named: the profile of `--profile`.
        local: the address and the key that `up` kept.
        file: what the settings file says.

    Raises:
        SettingsError: there is no such profile.
    """
    given = [_text(flags.get(name)) for name in ("api_url", "api_key")]
    variables = [environ.get(name) or None for name in ("TICKRAIL_API_URL", "TICKRAIL_API_KEY")]
    found = [Layer("a flag", given[0], given[1])]
    if named is not None:
        found.append(_of(profiles, named, "--profile"))
    found.append(Layer("the environment", variables[0], variables[1]))
    chosen = environ.get(PROFILE)
    if named is None and chosen:
        found.append(_of(profiles, chosen, PROFILE))
    up: list[Layer] = []
    if local is not None:
        kept = f"`up` in {settings.data_dir}"
        up = [Layer(kept, local[0], local[1], pair=True, found=True)]
    last: list[Layer] = []
    if named is None and not chosen and profiles.current is not None:
        last = [_of(profiles, profiles.current, "the last login")]
    elsewhere = [layer.url for layer in last] != [layer.url for layer in up]
    if up and file.url is None and elsewhere:
        return [*found, *up, *last, file]
    return [*found, *last, file, *up]


def _of(profiles: Profiles, name: str, said_by: str) -> Layer:
    profile = profiles.get(name)
    source = f"the profile {name} ({said_by})"
    return Layer(source, profile.url, profile.key, pair=True, profile=name)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def find_endpoint(
    settings: Settings,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    named: str | None,
    file: Layer,
) -> Endpoint:
    """The API and key of this command line; `file`: what the settings file says of them.

    Raises:
        SettingsError: there is no such profile, or the file of profiles cannot be read.
    """
    layers = layers_of(
        flags=flags,
        environ=environ,
        settings=settings,
        profiles=read_profiles(environ),
        named=named,
        local=home.read_client(settings.data_dir),
        file=file,
    )
    return decide(layers, settings.api_url)


def file_layer(file: Path | None, *, found: bool) -> Layer:
    """What a settings file says of the API.

    Args:
        file: the file; None: there is none.
        found: whether it is there because of its usual name alone.

    Raises:
        SettingsError: something in it is unknown or wrong.
    """
    if file is None:
        return NOTHING
    from tickrail.runtime.settings import load_settings  # noqa: PLC0415 - the help is to be quick

    own = load_settings(environ={}, config_file=file)
    url, key = (
        str(getattr(own, name)) if name in own.model_fields_set else None
        for name in ("api_url", "api_key")
    )
    return Layer("the settings file", url, key, found=found)


def masked(key: str) -> str:
    """A key without its secret: enough to tell which it is."""
    if not key:
        return "none"
    prefix, underscore, secret = key.rpartition("_")
    return f"{prefix}_..." if key.startswith("trk_") and underscore and secret else "..."
