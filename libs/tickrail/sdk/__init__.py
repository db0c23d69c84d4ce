"""For users: tasks in Python, helpers to test them, and a client of the HTTP API.

What a module with tasks needs is here and imports nothing but the standard library.
"""

from tickrail.core.tasks import Cancelled, Context, Fail, Retry, Snooze, Task
from tickrail.sdk.app import App, task

__all__ = ["App", "Cancelled", "Context", "Fail", "Retry", "Snooze", "Task", "task"]
