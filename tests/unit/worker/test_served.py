"""A worker serves all that its queues hold, or refuses to start and says what is missing."""

from __future__ import annotations

import pytest

from tickrail.core.errors import SettingsError, SetupError
from tickrail.runtime.settings import Settings, load_settings
from tickrail.sdk import App
from tickrail_worker.served import check_queues, find_app, served_kinds


def settings(**given: object) -> Settings:
    return load_settings(given, environ={})


def test_an_app_adds_tasks_to_what_a_worker_runs() -> None:
    assert served_kinds(settings(), None) == ("webhook", "kafka")
    assert served_kinds(settings(), App()) == ("webhook", "kafka", "task")
    assert served_kinds(settings(worker_targets="task,noop"), App()) == ("task", "noop")


def test_the_app_is_found_where_one_is_named() -> None:
    assert find_app(settings()) is None
    found = find_app(settings(worker_app="tests.support.task_app:app"))
    assert found is not None
    assert "ends" in found.tasks


def test_tasks_need_an_app() -> None:
    with pytest.raises(SettingsError, match=r"names task and there is no app \(--app MODULE:APP"):
        find_app(settings(worker_targets="webhook,task"))


def test_a_worker_that_runs_more_than_its_queues_serve_is_fine() -> None:
    check_queues(["webhook", "kafka", "noop"], {"default": ["webhook"], "small": []})


REFUSED = "The queue q serves {}, which this worker does not run: {}, or let the queue serve less."
NAME_IT = "name the app that holds the tasks (--app MODULE:APP, TICKRAIL_WORKER_APP)"
ADD = "add {} to TICKRAIL_WORKER_TARGETS"


@pytest.mark.parametrize(
    ("kinds", "missing", "ways"),
    [
        (["webhook", "task"], "task", NAME_IT),
        (["command", "webhook", "noop"], "command, noop", ADD.format("command, noop")),
        (["command", "task"], "command, task", f"{NAME_IT} and {ADD.format('command')}"),
    ],
)
def test_one_that_runs_less_refuses_in_one_line(kinds: list[str], missing: str, ways: str) -> None:
    with pytest.raises(SetupError) as caught:
        check_queues(["webhook", "kafka"], {"default": ["webhook"], "q": kinds})
    assert str(caught.value) == REFUSED.format(missing, ways)
