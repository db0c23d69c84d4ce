"""What a worker's settings say of commands."""

from __future__ import annotations

import pytest

from tickrail.core.errors import SettingsError
from tickrail.core.resource_limits import NO_LIMITS, ResourceLimits
from tickrail.runtime.settings import load_settings
from tickrail_worker.executors import command_settings
from tickrail_worker.presence import worker_info

ENVIRON = {"LANG": "de", "PGHOST": "db", "TICKRAIL_DATABASE_URL": "secret"}


def test_nothing_is_passed_and_limited_unless_it_is_said() -> None:
    found = command_settings(load_settings({}, environ={}), ENVIRON)
    assert (found.passed, found.limits, found.max_concurrency) == ({}, NO_LIMITS, 16)


def test_named_variables_and_limits() -> None:
    given = {"command_env": "LANG,TZ", "command_limits": "memory=1GiB, cpu=1h"}
    found = command_settings(load_settings(given, environ={}), ENVIRON)
    assert found.passed == {"LANG": "de"}
    assert found.limits == ResourceLimits(memory=1 << 30, cpu=3600)
    assert "de" not in repr(found)


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"command_env": "LANG,TICKRAIL_DATABASE_URL"}, "command_env"),
        ({"command_env": "LANG=de"}, "command_env"),
        ({"command_limits": "memory"}, "command_limits"),
        ({"command_limits": "disk=1GiB"}, "command_limits"),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, str], setting: str) -> None:
    with pytest.raises(SettingsError, match=setting) as e:
        command_settings(load_settings(given, environ={}), ENVIRON)
    assert e.value.problems[0].pointer == setting


def test_each_start_of_a_worker_has_an_id_of_its_own() -> None:
    settings = load_settings({"name": "w-1", "worker_queues": "a,b"}, environ={})
    running, closing = [3], [False]

    def info() -> tuple[object, object]:
        made = worker_info(
            settings, ("webhook",), ("close",), lambda: running[0], lambda: closing[0]
        )
        return made(), made()

    first, again = info()
    other, _ = info()
    assert first == again
    assert first != other
    made = worker_info(settings, ("webhook",), ("close",), lambda: 4, lambda: True)()
    assert (made.name, made.queues, made.kinds, made.tasks) == (
        "w-1", ("a", "b"), ("webhook",), ("close",),
    )  # fmt: skip
    assert (made.running, made.draining) == (4, True)
    assert made.id.startswith("w-1-")
