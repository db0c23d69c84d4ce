"""Profiles of `tickrail login`: addresses and keys of APIs, in a file that only its owner reads."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tickrail.core.errors import Problem, SettingsError
from tickrail_cli.home import write_private

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
USUAL = "default"
_FILE = "profiles.toml"


@dataclass(frozen=True)
class Profile:
    """An API and the key for it."""

    url: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Profiles:
    """What is stored: profiles by name, and the one that is used where none is named."""

    found: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Profile:
        """The profile of a name.

        Raises:
            SettingsError: there is none.
        """
        if name not in self.found:
            known = f"one of {', '.join(sorted(self.found))}" if self.found else "none is stored"
            raise SettingsError(
                f"There is no profile {name!r} ({known}; `tickrail login --profile {name}` makes"
                " it)."
            )
        return self.found[name]

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """With this profile, which becomes the current one."""
        return Profiles({**self.found, name: profile}, name)

    def without(self, name: str) -> Profiles:
        """Without this profile."""
        left = {key: value for key, value in self.found.items() if key != name}
        return Profiles(left, None if self.current == name else self.current)


def folder(environ: Mapping[str, str]) -> Path:
    """Where the user's settings are: in `XDG_CONFIG_HOME`, by default `~/.config`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # The specification has relative paths ignored.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "/") / ".config"
    return root / "tickrail"


def file_of(environ: Mapping[str, str]) -> Path:
    """The file of profiles."""
    return folder(environ) / _FILE


def read_profiles(environ: Mapping[str, str]) -> Profiles:
    """What is stored; nothing where there is no file.

    Raises:
        SettingsError: the file cannot be read, or is not as `tickrail login` writes it.
    """
    file = file_of(environ)
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return Profiles()
    except OSError as e:
        raise SettingsError(f"{file}: it cannot be read ({e.strerror}).") from e
    except ValueError as e:  # no UTF-8, no TOML
        raise SettingsError(f"{file}: it is not valid TOML: {e}.") from None
    tables, current = document.get("profiles", {}), document.get("current")
    found: dict[str, Profile] = {}
    problems: list[Problem] = []
    for name, table in tables.items() if isinstance(tables, dict) else ():
        url, key = (
            (table.get("api_url"), table.get("api_key")) if isinstance(table, dict) else (None,) * 2
        )
        if isinstance(url, str) and isinstance(key, str):
            found[name] = Profile(url, key)
        else:
            problems.append(Problem(f"{file}: profiles.{name}", "lacks api_url or api_key"))
    if problems:
        raise SettingsError("The profiles are not right.", tuple(problems))
    return Profiles(found, current if isinstance(current, str) and current in found else None)


def replace_key(environ: Mapping[str, str], name: str, key: str) -> None:
    """Store another key in a profile; which one is used stays as it is.

    Raises:
        SettingsError: there is no such profile, or the file cannot be read.
    """
    stored = read_profiles(environ)
    changed = {**stored.found, name: Profile(stored.get(name).url, key)}
    write_profiles(environ, Profiles(changed, stored.current))


def write_profiles(environ: Mapping[str, str], profiles: Profiles) -> Path:
    """Store profiles; the file is its owner's alone. Answers where it is."""
    file = file_of(environ)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = ["# Written by `tickrail login`."]
    if profiles.current is not None:
        lines.append(f"current = {json.dumps(profiles.current)}")
    for name, profile in sorted(profiles.found.items()):
        lines += [
            "",
            f"[profiles.{json.dumps(name)}]",
            f"api_url = {json.dumps(profile.url)}",
            f"api_key = {json.dumps(profile.key)}",
        ]
    write_private(file, "\n".join(lines) + "\n")
    return file
