"""docs/tasks.md: its sessions go as shown, and what it says of names and numbers is so."""

from __future__ import annotations

import doctest
import json
import re

from tests.support.tree import ROOT

from tickrail.core.execution import PROGRESS_BYTES
from tickrail.core.target_task import TaskCall
from tickrail.core.targets import parse_target
from tickrail.core.tasks import MAX_VALUE_BYTES, Context
from tickrail.executors.task import TaskSettings
from tickrail.runtime.settings_fields import default_text

PAGE = ROOT / "docs/tasks.md"
TEXT = PAGE.read_text()


def test_its_sessions_go_as_shown() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert (found.failed, found.attempted > 10) == (0, True)


def test_its_job_calls_its_task() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert parse_target(json.loads(block)["target"]) == TaskCall(
        "greet", {"name": "Ada", "polite": True}
    )


def test_it_names_all_that_a_context_has() -> None:
    public = {n for n in [*Context.__slots__, *vars(Context)] if not n.startswith("_")} - {"hooks"}
    assert {name for name in public if not re.search(rf"\b{name}\b", TEXT)} == set()


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"at most {PROGRESS_BYTES // 1024} KiB" in TEXT
    assert f"at most {MAX_VALUE_BYTES // 1024} KiB" in TEXT
    assert f"`TICKRAIL_TASK_CONCURRENCY` ({default_text('task_concurrency')})" in TEXT
    assert f"after {TaskSettings().stop_grace:g} s SIGKILL" in TEXT
