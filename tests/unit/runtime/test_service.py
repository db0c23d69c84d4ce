"""Processes of their own, since signals and exit codes belong to a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WAIT = 30

HEAD = """
import sys, threading
from tickrail.core.errors import *
from tickrail.runtime import log, service
from tickrail.runtime.http import StatusServer
log.configure("json", "info", "p", stream=sys.stdout)

class Running:
    why = None
    def stop(self): pass
    def failed(self): return self.why

def ready():
    print("READY", flush=True)
    return Running()
"""


class Process:
    def __init__(self, body: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", HEAD + textwrap.dedent(body)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.out = ""
        self.err = ""

    def until(self, word: str) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.out += line
            if word in line:
                return
        raise AssertionError(f"no {word} in {self.out}")

    def end(self) -> int:
        out, self.err = self.child.communicate(timeout=WAIT)
        self.out += out
        return self.child.returncode


@pytest.fixture
def started() -> Iterator[list[Process]]:
    found: list[Process] = []
    yield found
    for process in found:
        process.child.kill()
        process.child.communicate()


def process(started: list[Process], body: str) -> Process:
    made = Process(body)
    started.append(made)
    return made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(started: list[Process], number: int) -> None:
    p = process(started, "sys.exit(service.run('api', ready))")
    p.until('"started"')
    p.child.send_signal(number)
    assert p.end() == 0
    assert '"event":"stopped"' in p.out
    assert p.err == ""


def test_a_second_signal_ends_it_at_once(started: list[Process]) -> None:
    body = """
    class Slow(Running):
        def stop(self):
            print("STOPPING", flush=True)
            threading.Event().wait()
    def start():
        ready()
        return Slow()
    sys.exit(service.run('api', start))
    """
    p = process(started, body)
    p.until('"started"')
    p.child.send_signal(signal.SIGTERM)
    p.until("STOPPING")
    p.child.send_signal(signal.SIGINT)
    assert p.end() == 128 + signal.SIGINT


def test_a_stop_that_takes_too_long_is_cut_short(started: list[Process]) -> None:
    body = """
    class Slow(Running):
        def stop(self): threading.Event().wait()
    sys.exit(service.run('api', lambda: Slow(), stop_within=0.2))
    """
    p = process(started, body)
    p.until('"started"')
    p.child.send_signal(signal.SIGTERM)
    assert p.end() == 1
    assert "cut short" in p.out


def test_a_start_that_waits_is_given_up_by_a_signal(started: list[Process]) -> None:
    body = """
    def start():
        print("WAITING", flush=True)
        threading.Event().wait()
    sys.exit(service.run('api', start))
    """
    p = process(started, body)
    p.until("WAITING")
    p.child.send_signal(signal.SIGTERM)
    assert p.end() == 0
    assert "stopped while starting" in p.out


def test_it_ends_when_it_cannot_go_on(started: list[Process]) -> None:
    body = """
    class Broken(Running):
        why = "loop intake has ended"
    sys.exit(service.run('worker', Broken))
    """
    p = process(started, body)
    assert p.end() == 1
    assert "loop intake has ended" in p.out


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("SetupError('no schema yet: run `tickrail migrate`')", 1, "no schema yet"),
        ("UnavailableError('PostgreSQL at h:1 does not answer')", 3, "h:1 does not answer"),
        ("SettingsError('wrong', (Problem('status_port', 'in use', 'a free one'),))", 2, "a free"),
        ("SetupError('postgresql://u:hush@h/d')", 1, "u:***@h"),
    ],
)
def test_a_refused_start_is_one_message_without_a_trace(
    started: list[Process], error: str, code: int, said: str
) -> None:
    body = f"""
    def start():
        raise {error}
    sys.exit(service.run('api', start))
    """
    p = process(started, body)
    assert p.end() == code
    assert p.err.startswith("tickrail api: ")
    assert said in p.err
    assert "Traceback" not in p.err + p.out
    assert "hush" not in p.err


def test_a_bug_at_the_start_is_logged_with_its_trace(started: list[Process]) -> None:
    p = process(started, "sys.exit(service.run('api', lambda: 1 / 0))")
    assert p.end() == 1
    assert "ZeroDivisionError" in p.out


def test_a_failing_stop_is_an_exit_code(started: list[Process]) -> None:
    body = """
    class Bad(Running):
        def stop(self): 1 / 0
    sys.exit(service.run('api', Bad))
    """
    p = process(started, body)
    p.until('"started"')
    p.child.send_signal(signal.SIGTERM)
    assert p.end() == 1
    assert "the stop failed" in p.out
