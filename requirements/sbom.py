"""A bill of materials (CycloneDX 1.6, JSON) of the Python packages that an environment holds.

    python requirements/sbom.py SITE_PACKAGES LOCK

Run where the image is built, by the Python of the build: it needs nothing but itself. Hashes are
those that the lock allows for the version, so they are of what may have been fetched. The same
environment and lock give the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

PINNED = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
REQUIRED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)")
OURS = "tickrail"
ROOT_LICENCE = "Apache-2.0"


def canonical(name: str) -> str:
    """A package's name as indexes and locks write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned_in(lock: str) -> dict[str, str]:
    """The version of each package in a lock."""
    matches = (PINNED.match(line) for line in lock.splitlines())
    return {canonical(match[1]): match[2] for match in matches if match}


def hashes_of(lock: str) -> dict[str, list[str]]:
    """The hashes of each package in a lock."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lock.splitlines():
        if pinned := PINNED.match(line):
            name = canonical(pinned[1])
            found[name] = []
        found[name] += HASH.findall(line)
    return found


def bill(packages: Iterable[Distribution], hashes: Mapping[str, list[str]]) -> dict[str, Any]:
    """The document."""
    by_name = {canonical(d.metadata["Name"]): d for d in packages}
    own = by_name.pop(OURS)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": OURS,
                "name": OURS,
                "version": own.version,
                "licenses": [{"license": {"id": ROOT_LICENCE}}],
            }
        },
        "components": [
            _component(name, d, hashes.get(name, ())) for name, d in sorted(by_name.items())
        ],
        "dependencies": [
            {"ref": _ref(name, by_name), "dependsOn": _needs(d, by_name)}
            for name, d in [(OURS, own), *sorted(by_name.items())]
        ],
    }


def _component(name: str, package: Distribution, hashes: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(name, package),
        "name": name,
        "version": package.version,
        "purl": _purl(name, package),
    }
    if licence := licence_of(package):
        found["licenses"] = [licence]
    # A release has several files, and which of them was fetched depends on the machine.
    found["properties"] = [{"name": "tickrail:sha256", "value": one} for one in sorted(hashes)]
    return found


def licence_of(package: Distribution) -> dict[str, Any] | None:
    """What a package says of its licence: an SPDX expression, else a classifier's or its words."""
    meta = package.metadata
    for expression in meta.get_all("License-Expression") or ():
        return {"expression": expression}
    for classifier in meta.get_all("Classifier") or ():
        if classifier.startswith("License :: ") and classifier.count(" :: ") > 1:
            return {"license": {"name": classifier.rpartition(" :: ")[2]}}
    words = "\n".join(meta.get_all("License") or ()).strip().splitlines()
    return {"license": {"name": words[0]}} if words else None


def _needs(package: Distribution, there: Mapping[str, Distribution]) -> list[str]:
    matches = (REQUIRED.match(line) for line in package.requires or ())
    names = {canonical(match[1]) for match in matches if match}
    return sorted(_ref(name, there) for name in names & there.keys())


def _ref(name: str, there: Mapping[str, Distribution]) -> str:
    return _purl(name, there[name]) if name in there else name


def _purl(name: str, package: Distribution) -> str:
    return f"pkg:pypi/{name}@{package.version}"


def main(site_packages: str, lock: str) -> None:
    """Print the document of an environment."""
    document = bill(distributions(path=[site_packages]), hashes_of(Path(lock).read_text()))
    json.dump(document, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
