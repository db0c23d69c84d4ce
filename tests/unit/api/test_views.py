"""What the API shows of a launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.core.test_explain import RECORD

from tickrail.core.states import State
from tickrail_api.views import launch_document


@pytest.mark.parametrize(
    ("state", "attempt", "failures", "shown", "again"),
    [
        (State.DUE, 1, 0, "due", False),
        (State.DUE, 3, 2, "retrying", True),
        pytest.param(State.DUE, 3, 0, "due", True, id="put off by its task"),
        (State.RUNNING, 3, 2, "running", False),
        (State.DEAD, 3, 3, "dead", False),
    ],
)
def test_when_the_next_attempt_is(
    state: State, attempt: int, failures: int, shown: str, again: bool
) -> None:
    found = launch_document(replace(RECORD, state=state, attempt=attempt, failures=failures))
    assert found["state"] == shown
    assert found["next_attempt_at"] == (found["due_at"] if again else None)
