"""Apps and tasks: how they are made, found and bound, and what is told where that fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tickrail.core.errors import SettingsError
from tickrail.core.tasks import ArgumentsError
from tickrail.sdk import App, Context, Task, task
from tickrail.sdk.app import load_app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import from; what it brought is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_task_is_the_plain_function_too() -> None:
    app = App()

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task(name="shop.report", process=True)
    async def report() -> None: ...

    assert isinstance(double, Task)
    assert double(4) == 8
    assert dict(app.tasks) == {"double": double, "shop.report": report}
    assert (double.is_async, double.process, double.wants_context) == (False, False, False)
    assert (report.is_async, report.process) == (True, True)


def test_tasks_without_an_app_are_included() -> None:
    @task
    def one() -> None: ...

    @task(name="two", process=True)
    def second() -> None: ...

    app = App([one])
    app.include(second, one)
    assert list(app.tasks) == ["one", "two"]


def test_two_tasks_of_one_name_are_refused() -> None:
    app = App()
    app.include(Task("size", lambda: None))
    with pytest.raises(ValueError, match="two tasks are called 'size'"):
        app.include(Task("size", lambda: None))


def _generator() -> Iterator[int]:
    yield 1


async def _agenerator() -> AsyncIterator[int]:
    yield 1


def _by_place(a: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "name", "message"),
    [
        (lambda: None, None, "'<lambda>' cannot be the name of a task"),
        (lambda: None, "a b", "'a b' cannot be the name of a task"),
        (_generator, None, "a generator cannot be a task"),
        (_agenerator, None, "a generator cannot be a task"),
        (_by_place, None, "'a' cannot be given by its name"),
    ],
)
def test_what_cannot_be_a_task_is_refused(
    function: Callable[..., Any], name: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        App().task(name=name)(function)


def test_a_class_is_no_function() -> None:
    with pytest.raises(TypeError, match="a task is a function"):
        App().task(Path)


def test_arguments_are_bound_by_name() -> None:
    def plain(a: int, b: int = 2, *rest: int) -> None: ...

    def open_(a: int, **more: object) -> None: ...

    def with_context(context: Context, *, a: int) -> None: ...

    assert Task("t", plain).bind({"a": 1}) == {"a": 1}
    assert Task("t", open_).bind({"a": 1, "z": 2}) == {"a": 1, "z": 2}
    assert Task("t", with_context).bind({"a": 1}) == {"a": 1, "context": None}
    with pytest.raises(
        ArgumentsError, match=r"there is no argument 'rest' \(it takes: a, b, rest\)"
    ):
        Task("t", plain).bind({"a": 1, "rest": [2]})
    with pytest.raises(ArgumentsError, match=r"argument 'a' is missing \(it takes: a\)"):
        Task("t", with_context).bind({})


MODULE = """
from tickrail.sdk import App, task
app = App()
empty = App()
number = 5

@app.task
def greet(name): ...
"""


def test_an_app_is_found_by_its_path(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine/tasks.py").write_text(MODULE)
    assert list(load_app("mine.tasks:app").tasks) == ["greet"]
    assert sys.path[0] == str(folder)


def test_the_only_app_or_the_tasks_of_a_module_need_no_name(folder: Path) -> None:
    (folder / "only.py").write_text(MODULE.replace("empty = App()", ""))
    assert list(load_app("only").tasks) == ["greet"]
    (folder / "loose.py").write_text(
        "from tickrail.sdk import task\n@task\ndef a(): ...\nb = a\n@task\ndef c(): ...\n"
    )
    assert list(load_app("loose").tasks) == ["a", "c"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "'' names no module"),
        ("shop tasks:app", "'shop tasks:app' names no module"),
        ("nowhere:app", "there is no module 'nowhere' in the present folder or installed"),
        ("shop.nowhere:app", "there is no module 'shop.nowhere'"),
        ("shop:ap", "shop has no 'ap' (did you mean shop:app?)"),
        ("shop:number", "shop:number is int"),
        ("shop:empty", "shop:empty has no tasks"),
        ("shop", "shop has 2 apps (shop:app or shop:empty)"),
        ("nothing", "nothing has no app and no task"),
        ("needy:app", "needy needs a module that is not there: absent_module"),
        ("broken:app", "broken cannot be imported: ZeroDivisionError: division by zero"),
        ("typo:app", "typo cannot be imported: SyntaxError"),
        ("twice", "twice: two tasks are called 'a'"),
    ],
)
def test_what_is_wrong_with_an_app_is_said_in_one_line(folder: Path, path: str, said: str) -> None:
    files = {
        "shop": MODULE,
        "nothing": "",
        "needy": "import absent_module",
        "broken": "x = 1\n1 / 0",
        "typo": "def f(:",
        "twice": "from tickrail.sdk import task\n@task\ndef a(): ...\nb = a\n@task\ndef a(): ...\n",
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_app(path)
    text = str(caught.value)
    assert f"TICKRAIL_WORKER_APP: {said}" in text
    assert text.count("\n") == 1
    if path in ("broken:app", "typo:app"):
        assert f"{path.partition(':')[0]}.py:" in text


def test_a_module_of_tasks_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, tickrail.sdk, tickrail.sdk.testing, tickrail.sdk.child\n"
        "names = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(n for n in names if n != 'tickrail' and not n.startswith('_')))"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout.strip() == "[]"
