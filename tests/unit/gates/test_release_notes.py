"""The newest section of the changelog is of this version and says how to come to it."""

from __future__ import annotations

import re
import tomllib

from tests.support.tree import ROOT

from tickrail.store.installation import revisions

TAKES_NOTHING = "its second half takes nothing away"


def newest() -> tuple[str, str]:
    """The version and the text of the newest section."""
    text = (ROOT / "CHANGELOG.md").read_text()
    parts = re.split(r"^## \[([^\]]+)\].*$", text, flags=re.MULTILINE)
    return parts[1], parts[2]


def test_it_is_of_the_version_that_the_package_has() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert newest()[0] == tomllib.load(file)["project"]["version"]


def test_it_says_how_to_upgrade_before_what_is_new() -> None:
    assert re.findall(r"^### (\w+)$", newest()[1], re.MULTILINE)[:2] == ["Upgrading", "Added"]


def test_it_says_of_the_second_half_what_the_revisions_are() -> None:
    takes_away = any(name.endswith("_post") for name in revisions())
    assert (TAKES_NOTHING in newest()[1]) == (not takes_away)
