"""Tasks that run in a process each; the processes import this module."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tickrail.sdk import App, Context, Fail, Retry, Snooze

app = App()
PATH = "tests.support.task_app:app"
_NEVER = threading.Event()


@app.task(process=True)
def where(context: Context, folder: str) -> dict[str, Any]:
    context.heartbeat({"done": 1})
    context.heartbeat({"done": 2})
    context.log("a line")
    print("printed", context.job)  # noqa: T201 - a task's output is its log
    Path(folder, "pid").write_text(str(os.getpid()))
    return {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "key": context.idempotency_key,
        "token": context.fencing_token,
        "payload": context.payload,
        "at": context.scheduled_at.isoformat(),
        "left": context.remaining,
    }


@app.task(process=True)
async def awaited(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


class BadAccountError(LookupError):
    pass


class MuteError(LookupError):
    def __str__(self) -> str:
        raise RuntimeError


_ENDS: dict[str, Callable[[], object]] = {
    "raises": lambda: _raise(BadAccountError("no account")),
    "mute": lambda: _raise(MuteError()),
    "retry": lambda: _raise(Retry("busy", after=7)),
    "snooze": lambda: _raise(Snooze(8)),
    "fail": lambda: _raise(Fail("gone")),
    "exit": lambda: sys.exit(3),
    "vanish": lambda: os._exit(4),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "large": lambda: "x" * 100_000,
}


def _raise(error: Exception) -> object:
    raise error


@app.task(process=True)
def ends(how: str) -> object:
    return _ENDS[how]()


@app.task(process=True)
def progresses_too_much(context: Context) -> None:
    context.heartbeat("x" * 5000)


@app.task(process=True)
def deaf(folder: str) -> None:
    """Minds nothing, and has a child that minds nothing either."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(folder, "pids").write_text(f"{os.getpid()} {child.pid}")
    _NEVER.wait(300)


@app.task(process=True)
def plain(folder: str) -> None:
    """Does not know of a context; its `finally` is run."""
    try:
        Path(folder, "began").touch()
        _NEVER.wait(300)
    finally:
        Path(folder, "cleaned").touch()


@app.task(process=True)
def minds(context: Context, folder: str) -> str:
    Path(folder, "began").touch()
    context.cancelled.wait(300)
    Path(folder, "cleaned").touch()
    return "stopped early"


@app.task(process=True)
async def amind(folder: str) -> None:
    try:
        _touch(folder, "began")
        await asyncio.sleep(300)
    finally:
        _touch(folder, "cleaned")


def _touch(folder: str, name: str) -> None:
    Path(folder, name).touch()
