"""What a program may use at most: CPU time, memory, files, processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Final

from tickrail.core.documents import escape
from tickrail.core.durations import format_duration, parse_duration
from tickrail.core.errors import Problem, SettingsError
from tickrail.core.target_fields import TargetFields

_SIZE = re.compile(r"(\d{1,15})\s*([KMGT]i?)?B?", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"T": 40, "G": 30, "M": 20, "K": 10}
_SIZES: Final = ("memory", "file_size")
_COUNTS: Final = ("open_files", "processes")
_MOST_BYTES: Final = 1 << 50
_MOST: Final = 1 << 20
_LONGEST: Final = timedelta(days=30)
_LEAST_MEMORY: Final = 1 << 20
_LEAST_FILES: Final = 8
SIZE_EXPECTED: Final = "a size such as 64KiB, 512MiB or 2GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Limits of each process of a command; None: as the worker has it.

    Attributes:
        cpu: seconds of CPU time of one process.
        memory: bytes of address space of one process.
        file_size: bytes of the largest file that it may write.
        open_files: files that one process may have open.
        processes: processes of the user that it runs as, all of them on the machine counted; root
            is exempt.
    """

    cpu: int | None = None
    memory: int | None = None
    file_size: int | None = None
    open_files: int | None = None
    processes: int | None = None

    def __bool__(self) -> bool:
        return bool(self.numbers())

    def numbers(self) -> dict[str, int]:
        """The limits that there are, by name."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def document(self) -> dict[str, object]:
        """As it is written; what is not limited is left out."""
        return {name: _text(name, value) for name, value in self.numbers().items()}

    def above(self, maximum: ResourceLimits) -> str | None:
        """The first limit that is above a maximum, in words; None where none is."""
        for f in fields(self):
            mine, most = getattr(self, f.name), getattr(maximum, f.name)
            if mine is not None and most is not None and mine > most:
                return f"{f.name} {_text(f.name, mine)} is above {_text(f.name, most)}"
        return None

    def within(self, maximum: ResourceLimits) -> ResourceLimits:
        """These limits, and those of the maximum where there is none."""
        missing = {f.name for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **{name: getattr(maximum, name) for name in missing})


NO_LIMITS = ResourceLimits()


def parse_size(text: str) -> int:
    """Bytes of a size: `512MiB`, `2G` (powers of 1024 with and without `i`), `4096`.

    Raises:
        ValueError: it is none; says what would be right.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not {SIZE_EXPECTED}")
    unit = (found[2] or "")[:1].upper()
    return int(found[1]) << _UNITS.get(unit, 0)


def format_size(size: int) -> str:
    """The shortest exact form: 536870912 is `512MiB`."""
    for unit, bits in _UNITS.items():
        if size and size % (1 << bits) == 0:
            return f"{size >> bits}{unit}iB"
    return f"{size}B"


def read_limits(target: TargetFields, field: str) -> ResourceLimits:
    """The limits of a target's field; problems go to the target's fields."""
    given = target.get(field)
    if given is None:
        return NO_LIMITS
    if not isinstance(given, Mapping):
        target.wrong(field, "is not an object", '{"cpu": "60s", "memory": "512MiB"}')
        return NO_LIMITS
    found: dict[str, int] = {}
    for name, value in given.items():
        where = f"{field}/{escape(str(name))}"
        if name not in _NAMES:
            target.wrong(where, "unknown limit", "known: " + ", ".join(_NAMES))
        elif value is not None:
            try:
                found[str(name)] = _read(str(name), value)
            except ValueError as e:
                target.wrong(where, "is no such limit", str(e))
    return ResourceLimits(**found)


def parse_limits(items: Sequence[str], setting: str) -> ResourceLimits:
    """The limits of a setting: `memory=2GiB`, `cpu=1h`.

    Raises:
        SettingsError: one of them is not one; names the setting.
    """
    found: dict[str, int] = {}
    for item in items:
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals or name not in _NAMES:
            expected = "<limit>=<value> with commas between; limits: " + ", ".join(_NAMES)
            raise _wrong(setting, f"has {item!r}", expected)
        try:
            found[name] = _read(name, int(text) if text.isdecimal() and name != "cpu" else text)
        except ValueError as e:
            raise _wrong(setting, f"has {item!r}", str(e)) from None
    return ResourceLimits(**found)


_NAMES: Final = tuple(f.name for f in fields(ResourceLimits))


def _wrong(setting: str, what: str, expected: str) -> SettingsError:
    problem = Problem(setting, what, expected)
    return SettingsError(f"The setting {setting} {what}; right would be {expected}.", [problem])


def _text(name: str, value: int) -> object:
    if name == "cpu":
        return format_duration(timedelta(seconds=value))
    return format_size(value) if name in _SIZES else value


def _read(name: str, value: object) -> int:
    """The number of a limit.

    Raises:
        ValueError: says what would be right.
    """
    if name == "cpu":
        expected = f"whole seconds as a duration, 1s to {format_duration(_LONGEST)}"
        try:
            length = parse_duration(value) if isinstance(value, str) else timedelta(0)
        except ValueError:
            raise ValueError(expected) from None
        if not timedelta(seconds=1) <= length <= _LONGEST or length.microseconds:
            raise ValueError(expected)
        return int(length.total_seconds())
    if name in _COUNTS:
        least = _LEAST_FILES if name == "open_files" else 1
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
            raise ValueError(f"a whole number from {least} to {_MOST}")
        return value
    least = _LEAST_MEMORY if name == "memory" else 0
    expected = f"{SIZE_EXPECTED}, at least {format_size(least)}" if least else SIZE_EXPECTED
    size = -1
    if isinstance(value, str):
        try:
            size = parse_size(value)
        except ValueError:
            raise ValueError(expected) from None
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    if not least <= size <= _MOST_BYTES:
        raise ValueError(expected)
    return size
