"""The settings of a process, checked as a whole before anything starts.

Order: flags, then `TICKRAIL_*` variables, then `tickrail.toml`, then the defaults. A setting
that nobody knows or whose value is wrong is refused in the form in which it was given.
Nothing is read at import.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tickrail.core.errors import Problem, SettingsError
from tickrail.runtime.settings_fields import Settings
from tickrail.runtime.settings_types import mask_url

__all__ = ["Settings", "load_settings"]

PREFIX = "TICKRAIL_"
OTHERS = frozenset({"TICKRAIL_CONFIG", "TICKRAIL_PROFILE"})
"""Variables that are read elsewhere: the path of the file itself, the command line's profile."""
RUN_PREFIXES = ("TICKRAIL_RUN_", "TICKRAIL_TEST_")
RUN_VARIABLES = frozenset(
    f"TICKRAIL_{name}"
    for name in (
        "ATTEMPT",
        "CLAIM",
        "FENCING_TOKEN",
        "IDEMPOTENCY_KEY",
        "JOB",
        "JOB_ID",
        "JOB_NAME",
        "LAUNCH",
        "LAUNCH_ID",
        "PAYLOAD",
        "SCHEDULED_AT",
        "TENANT",
        "TENANT_ID",
        "TRACEPARENT",
    )
)
"""What a worker gives to the commands it runs; such a command may call `tickrail` itself."""

_ALIKE = 0.6


@dataclass
class _Merged:
    """Values by setting name, and how each was written where it was given."""

    values: dict[str, object] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def take(self, name: str, value: object, written: str) -> None:
        self.values[name] = value
        self.written[name] = written

    def unknown(self, name: str, written: str, form: Callable[[str], str]) -> None:
        """Refuse a name; `form` writes another one in the way this one was given."""
        near = nearest(name, Settings.model_fields)
        expected = f"did you mean {form(near)}?" if near else "see the table of settings"
        self.problems.append(Problem(written, "there is no such setting", expected))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, if any is."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=_ALIKE)
    return found[0] if found else None


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str],
    config_file: Path | None = None,
) -> Settings:
    """The settings of this process.

    Args:
        flags: values given on the command line by setting name; None counts as not given.
        environ: the environment; only `TICKRAIL_*` is looked at. An empty variable counts as not
            given, except that it empties a list.
        config_file: the TOML file, if there is one. `[kafka] bootstrap` is `kafka_bootstrap`.

    Raises:
        SettingsError: with one problem for each setting that is unknown or wrong.
    """
    merged = _Merged()
    if config_file is not None:
        _from_file(merged, config_file)
    _from_environment(merged, environ)
    _from_flags(merged, flags or {})
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(merged.values)
    except ValidationError as e:
        found = (_problem(merged, d) for d in e.errors(include_url=False))
        merged.problems += dict.fromkeys(found)  # one for a list, however many of it are wrong
    if merged.problems or settings is None:
        raise SettingsError("The settings are not right.", tuple(merged.problems))
    return settings


def _from_flags(merged: _Merged, flags: Mapping[str, object]) -> None:
    for name, value in flags.items():
        if value is None:
            continue
        written = flag_of(name)
        if name in Settings.model_fields:
            merged.take(name, value, written)
        else:
            merged.unknown(name, written, flag_of)


def _from_environment(merged: _Merged, environ: Mapping[str, str]) -> None:
    for variable in sorted(environ):
        ours = variable.startswith(PREFIX)
        if not ours or variable in OTHERS | RUN_VARIABLES or variable.startswith(RUN_PREFIXES):
            continue
        name, value = variable.removeprefix(PREFIX).lower(), environ[variable]
        if name not in Settings.model_fields or variable != variable_of(name):
            merged.unknown(name, variable, variable_of)
        elif value or _is_list(Settings.model_fields[name]):
            merged.take(name, value, variable)


def _from_file(merged: _Merged, file: Path) -> None:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as e:
        raise SettingsError(f"{file}: it cannot be read ({e.strerror}).") from e
    except UnicodeDecodeError as e:
        raise SettingsError(f"{file}: it is not UTF-8 text (byte {e.start}).") from e
    except tomllib.TOMLDecodeError as e:
        raise SettingsError(f"{file}: it is not valid TOML: {e}.") from e
    for key, value in _flat(document, ""):
        name = key.replace(".", "_")
        written = f"{file.name}: {key}"
        if name in Settings.model_fields:
            merged.take(name, value, written)
        else:
            merged.unknown(name, written, lambda near: f"{file.name}: {near}")


def _flat(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def flag_of(name: str) -> str:
    """The flag of a setting: `api_port` -> `--api-port`."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The variable of a setting: `api_port` -> `TICKRAIL_API_PORT`."""
    return PREFIX + name.upper()


def _is_list(info: FieldInfo) -> bool:
    return get_origin(info.annotation) is tuple


def _problem(merged: _Merged, details: ErrorDetails) -> Problem:
    """One of pydantic's errors in our words."""
    if not details["loc"]:
        text = str(details.get("ctx", {}).get("error", details["msg"]))
        name = text.split(" ", 1)[0]
        return Problem(merged.written.get(name, flag_of(name)), text)
    name = str(details["loc"][0])
    info = Settings.model_fields[name]
    given = merged.values.get(name)
    message = f"{mask_url(str(given))!r} is not right" if info.repr else "is not right"
    return Problem(merged.written[name], message, expected_of(info))


def expected_of(info: FieldInfo) -> str:
    """What would be right for a setting, from its type and its bounds."""
    if info.examples:
        more = info.json_schema_extra
        allowed = more.get("allowed") if isinstance(more, dict) else None
        return (
            f"{allowed}, such as {info.examples[0]}" if allowed else f"such as {info.examples[0]}"
        )
    kind = info.annotation
    inner = [a for a in get_args(kind) if a not in {type(None), Ellipsis}]
    if _is_list(info):
        choices = get_args(inner[0]) if get_origin(inner[0]) is Literal else ()
        return f"any of {', '.join(choices)}" if choices else "names with commas between them"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(c) or "(empty)" for c in inner)
    words = {
        bool: "true or false",
        int: f"a whole number{_bounds(info)}",
        float: f"a duration such as 5, 30s or 1m30s{_bounds(info)}",
    }
    return next((words[t] for t in [kind, *inner] if t in words), "a text that is not empty")


def _bounds(info: FieldInfo) -> str:
    found = {
        word: getattr(m, word)
        for m in info.metadata
        for word in ("ge", "gt", "le")
        if getattr(m, word, None) is not None
    }
    low = (
        f"from {found['ge']}" if "ge" in found else f"above {found['gt']}" if "gt" in found else ""
    )
    high = f"to {found['le']}" if "le" in found else ""
    text = " ".join(part for part in (low, high) if part)
    return f" {text}" if text else ""
