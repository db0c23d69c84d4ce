"""The list of what the audit log tells of is that of what is written there."""

from __future__ import annotations

import re

import pytest
from tests.support.tree import ROOT

from tickrail.core.audit_actions import ACTIONS, known

NO_ACTIONS = {"dead_letters.redrive"}
"""Texts of the same form that are something else: a kind of operation."""


def test_an_action_that_is_not_in_the_list_is_not_written() -> None:
    assert known("job.create") == "job.create"
    with pytest.raises(ValueError, match=r"job\.made"):
        known("job.made")


def test_every_action_in_the_program_is_one_of_the_list() -> None:
    """Written as a text beside what writes entries, in Python or SQL."""
    found: set[str] = set()
    for room in ("libs/tickrail/engine", "libs/tickrail/store", "services/tickrail_api"):
        for file in sorted((ROOT / room).rglob("*.py")) + sorted((ROOT / room).rglob("*.sql")):
            text = file.read_text()
            if "audit" in text:
                found |= set(re.findall(r"""["']([a-z_]+\.[a-z_]+)["']""", text))
    subjects = {action.partition(".")[0] for action in ACTIONS}
    assert ACTIONS - found == set(), "nothing writes these"
    said = {action for action in found if action.partition(".")[0] in subjects}
    assert said - ACTIONS - NO_ACTIONS == set()
