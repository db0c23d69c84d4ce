"""The command target: a program on the worker's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tickrail.core.documents import escape
from tickrail.core.resource_limits import NO_LIMITS, ResourceLimits, read_limits
from tickrail.core.secrets import SecretRef, read_reference
from tickrail.core.target_fields import TargetFields

MAX_ARGUMENTS = 1000
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")


@dataclass(slots=True, frozen=True)
class Command:
    """A program on the worker's machine: a list of arguments, or a line for the shell.

    Attributes:
        argv: program and arguments; empty when `shell` is given.
        shell: a line for `$SHELL -c`, or None.
        env: variables added to the small environment that every command gets; a value is a text, or
            a secret.
        cwd: absolute path of the folder to run in; None for the user's home.
        user: name of the user to run as; None for the worker's own.
        stdin: text for standard input; None for the empty input.
        limits: what each of its processes may use.
    """

    argv: tuple[str, ...] = ()
    shell: str | None = None
    env: tuple[tuple[str, str | SecretRef], ...] = ()
    cwd: str | None = None
    user: str | None = None
    stdin: str | None = None
    limits: ResourceLimits = NO_LIMITS


def command_document(target: Command) -> dict[str, object]:
    """The fields of its document."""
    what: dict[str, object] = (
        {"argv": list(target.argv)} if target.shell is None else {"shell": target.shell}
    )
    what["env"] = {n: v.document() if isinstance(v, SecretRef) else v for n, v in target.env}
    for name in ("cwd", "user", "stdin"):
        if (value := getattr(target, name)) is not None:
            what[name] = value
    if target.limits:
        what["limits"] = target.limits.document()
    return what


def command_secrets(target: Command) -> Iterator[tuple[str, str]]:
    """The secrets that it names: where (in its fields), and the name."""
    for name, value in target.env:
        if isinstance(value, SecretRef):
            yield f"env/{escape(name)}/secret", value.name


def read_command(fields: TargetFields) -> Command | None:
    """The target; problems go to the fields."""
    fields.only("argv", "shell", "env", "cwd", "user", "stdin", "limits")
    argv = _argv(fields)
    shell = fields.text("shell", "a command line")
    if fields.has("argv") == fields.has("shell"):
        fields.wrong("", "needs argv or shell, and not both", '{"argv": ["/bin/true"]}')
    if shell is not None and not shell.strip():
        fields.wrong("shell", "is empty", "a command line")
    env = _env(fields)
    cwd = fields.text("cwd", "an absolute path", limit=4096)
    if cwd is not None and not cwd.startswith("/"):
        fields.wrong("cwd", "is not absolute", "an absolute path")
    user = fields.text("user", "a user name")
    if user is not None and not _USER.fullmatch(user):
        fields.wrong("user", "is not a user name", "a name like backup")
    stdin = fields.text("stdin", "a text", limit=1 << 20)
    return Command(argv, shell, env, cwd, user, stdin, read_limits(fields, "limits"))


def _env(fields: TargetFields) -> tuple[tuple[str, str | SecretRef], ...]:
    given = fields.get("env")
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        fields.wrong("env", "is not an object", 'an object of strings and {"secret": "name"}')
        return ()
    env: list[tuple[str, str | SecretRef]] = []
    for key, value in given.items():
        name, where = str(key), f"env/{escape(str(key))}"
        if not _ENV_NAME.fullmatch(name):
            fields.wrong(where, "is not a variable name", "letters, digits, _")
        elif name.startswith("TICKRAIL_"):
            fields.wrong(where, "is set by Tickrail", "a name without TICKRAIL_")
        if isinstance(value, Mapping):
            if (ref := read_reference(fields, where, value)) is not None:
                env.append((name, ref))
        elif not isinstance(value, str):
            fields.wrong(where, "is not a string", 'a string, or {"secret": "name"}')
        elif fields.clean(where, value):
            env.append((name, value))
    return tuple(env)


def _argv(fields: TargetFields) -> tuple[str, ...]:
    value = fields.get("argv")
    if value is None:
        return ()
    if not isinstance(value, list) or not 0 < len(value) <= MAX_ARGUMENTS:
        fields.wrong("argv", "is not a list of arguments", f"1 to {MAX_ARGUMENTS} strings")
        return ()
    argv: list[str] = []
    for i, item in enumerate(value):
        if not isinstance(item, str):
            fields.wrong(f"argv/{i}", "is not a string", "a string")
        elif not item and i == 0:
            fields.wrong("argv/0", "is empty", "a program")
        elif fields.clean(f"argv/{i}", item):
            argv.append(item)
    return tuple(argv)
