"""Apps: the tasks of a worker, written in Python. Imports nothing but the standard library.

    from tickrail.sdk import App

    app = App()

    @app.task
    def greet(name: str) -> str:
        return f"Hello {name}"

`tickrail worker --app module:app` serves them; a job calls one with
`{"task": {"name": "greet", "args": {"name": "Ada"}}}`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, overload

from tickrail.core.errors import Problem, SettingsError
from tickrail.core.target_task import TASK_NAME, TASK_NAME_EXPECTED
from tickrail.core.tasks import Task

Function = Callable[..., Any]

_SETTING = "TICKRAIL_WORKER_APP"


class App:
    """A set of tasks by name.

    Args:
        tasks: tasks made with the plain decorator `task`.

    Raises:
        ValueError: two of them have one name.
    """

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._tasks: dict[str, Task] = {}
        self.include(*tasks)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks by name."""
        return MappingProxyType(self._tasks)

    @overload
    def task(self, function: Function, /) -> Task: ...

    @overload
    def task(
        self, /, *, name: str | None = None, process: bool = False
    ) -> Callable[[Function], Task]: ...

    def task(
        self,
        function: Function | None = None,
        /,
        *,
        name: str | None = None,
        process: bool = False,
    ) -> Task | Callable[[Function], Task]:
        """Make a function a task of this app; used as a decorator, with or without arguments.

        Args:
            function: the function, ordinary or `async`; its parameters are the task's arguments. A
                parameter `context` is given by the worker: see `Context`.
            name: what jobs call it; the function's own name unless given.
            process: run each call in a process of its own, so that it can be killed at its time
                limit, has memory of its own, and keeps nothing else from running.

        Raises:
            ValueError: the name is taken or cannot be one, or the function cannot be called with
                arguments by name.
        """

        def decorate(found: Function) -> Task:
            made = _made(found, name, process)
            self.include(made)
            return made

        return decorate if function is None else decorate(function)

    def include(self, *tasks: Task) -> None:
        """Add tasks, of another module for example.

        Raises:
            ValueError: a name is taken by another task.
        """
        for found in tasks:
            if self._tasks.setdefault(found.name, found) is not found:
                raise ValueError(f"two tasks are called {found.name!r}; give one another name")


@overload
def task(function: Function, /) -> Task: ...


@overload
def task(*, name: str | None = None, process: bool = False) -> Callable[[Function], Task]: ...


def task(
    function: Function | None = None, /, *, name: str | None = None, process: bool = False
) -> Task | Callable[[Function], Task]:
    """Make a function a task without an app: `App.include` adds it, or `--app MODULE` finds it.

    The arguments are those of `App.task`.
    """

    def decorate(found: Function) -> Task:
        return _made(found, name, process)

    return decorate if function is None else decorate(function)


def _made(function: Function, name: str | None, process: bool) -> Task:
    chosen = name if name is not None else getattr(function, "__name__", "")
    if not TASK_NAME.fullmatch(chosen):
        raise ValueError(f"{chosen!r} cannot be the name of a task: {TASK_NAME_EXPECTED}")
    made = Task(chosen, function, process)
    made.check()
    return made


def load_app(path: str) -> App:
    """The app that a path names, its module imported; the present folder is looked in first.

    Args:
        path: `module:app`, or `module` alone for its only App, else for the tasks in it.

    Raises:
        SettingsError: there is no such app, or its module cannot be imported.
    """
    name, _, attribute = path.partition(":")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise _wrong(f"{path!r} names no module", "a module and an App in it, such as tasks:app")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(name)
    if not attribute:
        return _only_app(module)
    found = getattr(module, attribute, None)
    if isinstance(found, App):
        if not found.tasks:
            raise _wrong(f"{path} has no tasks", "an App with a task at least")
        return found
    if found is not None:
        raise _wrong(f"{path} is {type(found).__name__}", "a tickrail.sdk.App")
    apps = [n for n, value in vars(module).items() if isinstance(value, App)]
    near = difflib.get_close_matches(attribute, apps, 1, 0.4) or apps[:1]
    expected = f"did you mean {name}:{near[0]}?" if near else "a tickrail.sdk.App"
    raise _wrong(f"{name} has no {attribute!r}", expected)


def _only_app(module: ModuleType) -> App:
    found = list(vars(module).items())
    apps = {id(value): (n, value) for n, value in found if isinstance(value, App)}
    if len(apps) > 1:
        names = " or ".join(f"{module.__name__}:{n}" for n, _ in apps.values())
        raise _wrong(f"{module.__name__} has {len(apps)} apps", names)
    if apps:
        return next(iter(apps.values()))[1]
    tasks = list({id(value): value for _, value in found if isinstance(value, Task)}.values())
    if not tasks:
        raise _wrong(
            f"{module.__name__} has no app and no task", "a module with a tickrail.sdk.App"
        )
    try:
        return App(tasks)
    except ValueError as error:
        raise _wrong(f"{module.__name__}: {error}", "a name of its own for each task") from error


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _wrong(f"{name} needs a module that is not there: {error.name}",
                         "a module that can be imported") from error  # fmt: skip
        raise _wrong(
            f"there is no module {error.name!r} in the present folder or installed",
            "a module and an App in it, such as tasks:app",
        ) from error
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            where = f"{error.filename}:{error.lineno}"
        said = " ".join(str(error).split())
        raise _wrong(
            f"{name} cannot be imported: {type(error).__name__}: {said} ({where})",
            "a module that can be imported",
        ) from error


def _wrong(message: str, expected: str) -> SettingsError:
    return SettingsError("The app cannot be loaded.", [Problem(_SETTING, message, expected)])
