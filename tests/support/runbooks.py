"""The runbooks' command lines: those of the blocks in a section of a page."""

from __future__ import annotations

import re

from tests.support.tree import ROOT

LOOK, DO = "What to look at", "What to do"
PAGES = ROOT / "docs/runbooks"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def lines_of(text: str, section: str) -> list[str]:
    """The command lines of a section of a page."""
    parts = _SECTION.split(text)[1:]
    found = dict(zip(parts[0::2], parts[1::2], strict=True)).get(section, "")
    return [line.strip() for line in "".join(_BLOCK.findall(found)).splitlines() if line.strip()]
