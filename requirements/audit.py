"""Known vulnerabilities of what the locks pin: `python requirements/audit.py LOCK...`.

Runs pip-audit, which asks an advisory service on the network for each package and version. Exits 1
where one has a known vulnerability that `ACCEPTED` does not name, 2 where pip-audit itself failed.
Where the service does not answer, as on a machine without the network, that is said in one line and
is no failure: nothing is known then, for better or worse.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SERVICE = "osv"
URL = "https://api.osv.dev/v1/query"
WITHIN = 10.0
"""Seconds for the service's first answer."""
FOR_ALL = 240.0
"""Seconds for the answers about all packages."""

ACCEPTED: Mapping[str, str] = {}
"""Vulnerabilities, by id or alias, that do not concern this project, each with the reason."""

PINNED = re.compile(r"^[a-z0-9][a-z0-9.-]*==", re.MULTILINE)


class Known(NamedTuple):
    """A known vulnerability of a package."""

    package: str
    version: str
    ids: Sequence[str]
    fixed_in: Sequence[str]

    def __str__(self) -> str:
        """What is known, and what would end it."""
        fix = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "no version fixes it"
        return f"{self.package} {self.version}: {' = '.join(self.ids)}, {fix}"


def unreachable() -> str | None:
    """Why the service does not answer; None: it does."""
    question = {"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "26.3"}
    request = urllib.request.Request(
        URL, json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WITHIN) as answer:  # noqa: S310 - URL is https
            json.loads(answer.read())
    except (OSError, ValueError) as e:
        return str(getattr(e, "reason", e))
    return None


def pip_audit(locks: Sequence[str]) -> tuple[str, str]:
    """What pip-audit prints of the locks: its document, and what it says beside it."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    command += ["--vulnerability-service", SERVICE, "--disable-pip", "--require-hashes"]
    for lock in locks:
        command += ["--requirement", lock]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FOR_ALL, check=False)
    return done.stdout, done.stderr


def known_in(document: Any) -> Iterator[Known]:  # noqa: ANN401 - JSON
    """The vulnerabilities of a document of pip-audit."""
    for package in document["dependencies"]:
        for found in package.get("vulns", ()):
            ids = [found["id"], *found["aliases"]]
            yield Known(package["name"], package["version"], ids, found["fix_versions"])


def audit(
    locks: Sequence[str],
    accepted: Mapping[str, str],
    ask: Callable[[Sequence[str]], tuple[str, str]] = pip_audit,
    away: Callable[[], str | None] = unreachable,
) -> tuple[int, list[str]]:
    """The exit status and the lines to print."""
    text = "".join(Path(lock).read_text("utf-8") for lock in locks)
    if why := away():
        return 0, [f"vulnerabilities not looked up: the advisory service does not answer ({why})"]
    try:
        printed, beside = ask(locks)
        found = list(known_in(json.loads(printed)))
    except subprocess.TimeoutExpired:
        return 0, [f"vulnerabilities not looked up: no answer within {FOR_ALL:g} s"]
    except ValueError:
        if why := away():
            return 0, [f"vulnerabilities not looked up: the advisory service went away ({why})"]
        return 2, ["pip-audit failed:", *beside.strip().splitlines()[-5:]]
    open_ = [x for x in found if not accepted.keys() & set(x.ids)]
    if open_:
        return 1, [str(x) for x in open_]
    more = f", {len(found)} known and accepted" if found else ""
    return 0, [f"{len(set(PINNED.findall(text)))} packages, no known vulnerability{more}"]


def main(locks: Sequence[str]) -> int:
    """Look the locks up and say what is known."""
    status, lines = audit(locks, ACCEPTED)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
