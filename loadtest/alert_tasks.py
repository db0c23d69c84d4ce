"""Tasks that do what a task should not: the worker of loadtest/alerts.py has them."""

from __future__ import annotations

import threading

from tickrail.sdk import App

app = App()
_NEVER = threading.Event()


@app.task
def deaf(seconds: float) -> None:
    """Goes on after its timeout: it looks at nothing, and a thread cannot be killed."""
    _NEVER.wait(seconds)


@app.task
async def blocking(seconds: float) -> None:
    """Waits on the event loop, as a call does that is not awaited."""
    _NEVER.wait(seconds)
