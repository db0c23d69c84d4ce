from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tickrail.core.clock import SystemClock
from tickrail.local.errors import LocalServersError
from tickrail.local.server import Place, Server


class Script(Server):
    """A Python script in the place of a server."""

    name = "the script"
    program_name = "python"
    stop_plan = ()
    port = 0
    version = "1"

    def __init__(self, place: Place, script: str, *, program: str = sys.executable) -> None:
        super().__init__(place)
        self._command = [program, "-c", script]

    def prepare(self) -> None:
        """Nothing."""

    def command(self) -> list[str]:
        return self._command

    def is_ready(self) -> bool:
        return False


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(folder=tmp_path, log=tmp_path / "script.log", clock=SystemClock())


def test_a_server_that_dies_at_its_start_shows_its_last_lines(place: Place) -> None:
    script = Script(place, "print('first'); print('no space left'); raise SystemExit(3)")
    script.start()
    with pytest.raises(LocalServersError) as caught:
        script.wait_ready()
    text = str(caught.value)
    assert "the script ended while starting with exit code 3" in text
    assert f"{place.log} ends:" in text
    assert "no space left" in text
    assert not script.alive


def test_a_server_that_never_answers_is_given_up(place: Place) -> None:
    script = Script(place, "import signal; print('waiting', flush=True); signal.pause()")
    script.start()
    with pytest.raises(LocalServersError, match="was not ready after 0 s"):
        script.wait_ready(0.3)
    assert script.alive
    script.stop()
    assert not script.alive


def test_a_start_that_was_given_up_starts_nothing(place: Place) -> None:
    place.cancelled.set()
    script = Script(place, "pass")
    with pytest.raises(LocalServersError, match="given up"):
        script.start()
    assert script.pid is None


def test_a_missing_program_is_an_error_not_a_trace(place: Place) -> None:
    with pytest.raises(LocalServersError, match="cannot be started"):
        Script(place, "", program="/no/such/program").start()


def test_variables_that_would_steer_a_server_do_not_reach_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGPORT", "ETCD_NAME", "KAFKA_OPTS", "JAVA_TOOL_OPTIONS", "CLASSPATH"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("TZ", "UTC")
    script = Script(place, "import os; print(sorted(os.environ)); raise SystemExit(1)")
    script.start()
    with pytest.raises(LocalServersError) as caught:
        script.wait_ready()
    assert "'TZ'" in str(caught.value)
    for name in ("PGPORT", "ETCD_NAME", "KAFKA_OPTS", "JAVA_TOOL_OPTIONS", "CLASSPATH"):
        assert name not in str(caught.value)


def test_a_log_that_has_grown_too_large_is_kept_aside(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickrail.local.procs.LOG_LIMIT_BYTES", 10)
    place.log.write_text("a long old log\n")
    script = Script(place, "print('new'); raise SystemExit(1)")
    script.start()
    with pytest.raises(LocalServersError, match="new"):
        script.wait_ready()
    assert place.log.with_name("script.log.1").read_text() == "a long old log\n"
    assert place.log.read_text() == "new\n"
