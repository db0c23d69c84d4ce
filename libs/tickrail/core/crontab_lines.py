"""The lines of a crontab as Debian's cron(8) reads them: assignments, time fields, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tickrail.core.cron import NO_KEY, CronError
from tickrail.core.cron_fields import (
    DAY_OF_MONTH,
    HOUR,
    MINUTE,
    MONTH,
    WEEKDAY,
    FieldParser,
    FieldSpec,
)

CLASSIC: Final = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, WEEKDAY)
_BLANK: Final = " \t"
_A_LINE: Final = "minute hour day-of-month month weekday command, or @daily command"
_WORD = re.compile(r"[A-Za-z0-9]+", re.ASCII)


class LineError(ValueError):
    """A line that cron refuses: why, and what would be right."""

    def __init__(self, message: str, expected: str = "") -> None:
        self.message = message
        self.expected = expected
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a line that its writer should know; `code` is stable."""

    line: int
    code: str
    message: str


def assignment(line: str) -> tuple[str, str] | None:
    """Name and value of an environment line; None when the line is none.

    Blanks round the equals sign do not count, quotes round name or value are taken off, blanks
    behind a bare value are dropped, and nothing is expanded.
    """
    at = 0
    name, at = _part(line, at, "=" + _BLANK)
    at = _skip(line, at)
    if name is None or not name or line[at : at + 1] != "=":
        return None
    at = _skip(line, at + 1)
    if line[at : at + 1] in ("'", '"'):
        value, at = _part(line, at, "")
        return (name, value) if value is not None and not line[at:].strip() else None
    return name, line[at:].rstrip()


def _part(line: str, at: int, ends: str) -> tuple[str | None, int]:
    """A quoted or bare word from `at`; None when a quote is not closed."""
    quote = line[at : at + 1]
    if quote in ("'", '"'):
        end = line.find(quote, at + 1)
        return (line[at + 1 : end], end + 1) if end >= 0 else (None, at)
    end = at
    while end < len(line) and line[end] not in ends:
        end += 1
    return line[at:end], end


def _skip(line: str, at: int) -> int:
    while at < len(line) and line[at] in _BLANK:
        at += 1
    return at


def word(line: str) -> tuple[str, str]:
    """The first word of a line and the rest without the blanks between."""
    end = 0
    while end < len(line) and line[end] not in _BLANK:
        end += 1
    return line[:end], line[_skip(line, end) :]


def time_fields(line: str) -> tuple[str, str, list[tuple[str, str]]]:
    """The five time fields as an expression, the rest of the line, and notes (code, message).

    Raises:
        LineError: cron refuses a field.
    """
    fields: list[str] = []
    notes: list[tuple[str, str]] = []
    rest = line
    for i, spec in enumerate(CLASSIC):
        text, rest = word(rest)
        if not text:
            raise LineError(
                f"has {i} time field{'s' * (i != 1)}",
                _A_LINE,
            )
        field, found = _Field(spec, i + 1, text).read()
        fields.append(field)
        notes += found
    return " ".join(fields), rest, notes


class _Field:
    """One time field, read as cron reads it: what follows a complete value is passed over."""

    def __init__(self, spec: FieldSpec, position: int, text: str) -> None:
        self.spec = spec
        self.text = text
        self.parser = FieldParser(spec, position, text, NO_KEY)
        self.notes: list[tuple[str, str]] = []

    def read(self) -> tuple[str, list[tuple[str, str]]]:
        """The field for our own parser, and notes."""
        values: set[int] = set()
        backwards = False
        at = 0
        while True:
            low, high, step, at = self._item(at)
            if low > high:
                backwards = True
            values.update(range(low, high + 1, step))
            if self.text[at : at + 1] != ",":
                break
            at += 1
        legal = self.text[:at]
        if at < len(self.text):
            self._note("ignored_text", f"cron reads {legal!r} and passes over {self.text[at:]!r}")
        try:
            ours = FieldParser(self.spec, self.parser.position, legal, NO_KEY).parse()
        except CronError:
            if backwards:
                raise LineError(f"{self.spec.name} {self.text!r} cannot be read") from None
        else:
            if backwards:
                self._note(
                    "backwards", f"{legal!r} runs backwards: cron never fires then; here it wraps"
                )
            if backwards or ours.mask == self._mask(values):
                return legal, self.notes
        return self._listed(values), self.notes

    def _mask(self, values: set[int]) -> int:
        modulus = 7 if self.spec is WEEKDAY else self.spec.high + 1
        return sum({1 << value % modulus for value in values})

    def _listed(self, values: set[int]) -> str:
        """The values written out; `*` stays in front where it decides how days combine."""
        spec = self.spec
        if self.text[0] == "*" and values == {spec.low} and spec not in (MINUTE, HOUR):
            return f"*/{spec.high}"
        return ",".join(str(value) for value in sorted(values))

    def _item(self, at: int) -> tuple[int, int, int, int]:
        """Low, high, step and end of the item at `at`."""
        spec = self.spec
        if self.text[at : at + 1] == "*":
            low, high, at = spec.low, spec.high, at + 1
        else:
            low, at = self._number(at)
            if self.text[at : at + 1] == "/":
                raise LineError(
                    f"{spec.name} {self.text!r}: cron takes a step after * or a range only",
                    f"{low}-{spec.high}{self.text[at:]} for every such value from {low} on",
                )
            if self.text[at : at + 1] != "-":
                return low, low, 1, at
            high, at = self._number(at + 1)
        if self.text[at : at + 1] != "/":
            return low, high, 1, at
        found = _WORD.match(self.text, at + 1)
        if found is None or not found[0].isdigit() or int(found[0][:9]) == 0:
            raise LineError(
                f"{spec.name} {self.text!r}: a step is a number from 1 on",
                f"*/5, or {spec.allowed}",
            )
        step = int(found[0][:9])
        if step > high - low >= 0 and step > (spec.high if spec.low == 0 else spec.size - 1):
            values = f"{spec.name} {low}"
            self._note(
                "wide_step", f"step {step} is wider than the field: cron fires at {values} only"
            )
        return low, high, step, found.end()

    def _number(self, at: int) -> tuple[int, int]:
        found = _WORD.match(self.text, at)
        if self.spec is MINUTE and at == 0 and not self.text[:1].isdigit():
            raise LineError(f"begins with no time fields: {self.text!r}", _A_LINE)
        if found is None:
            raise LineError(
                f"{self.spec.name} (field {self.parser.position}): {self.text!r} cannot be read",
                f"{self.spec.name} is {self.spec.allowed}",
            )
        text = found[0].upper()
        if text in self.spec.names:
            return self.spec.names[text], found.end()
        if text.isdigit() and self.spec.low <= int(text[:9]) <= self.spec.high:
            return int(text[:9]), found.end()
        try:
            FieldParser(self.spec, self.parser.position, found[0], NO_KEY).parse()
        except CronError as e:
            raise LineError(e.message, e.expected) from None
        raise LineError(
            f"{self.spec.name} (field {self.parser.position}): cron knows no {found[0]!r}",
            f"{self.spec.name} is {self.spec.allowed}",
        )

    def _note(self, code: str, message: str) -> None:
        self.notes.append((code, message))


def command_and_input(text: str) -> tuple[str, str | None]:
    r"""The command, and its standard input where an unescaped `%` gives it one.

    In the command `\%` is a percent sign and two backslashes are one; the first other `%` ends
    it. Further ones are newlines of the input, which ends with one; there `\%` is a percent sign
    whatever stands before. Other backslashes stay.
    """
    out: list[str] = []
    at = 0
    while at < len(text) and text[at] != "%":
        at += text[at] == "\\" and text[at + 1 : at + 2] in ("%", "\\")
        out.append(text[at])
        at += 1
    command = "".join(out)
    if at == len(text):
        return command, None
    given = re.sub(r"(\\)?%", lambda m: "%" if m[1] else "\n", text[at + 1 :])
    return command, given if not given or given.endswith("\n") else given + "\n"


_LONGEST: Final = 998
_BACKGROUND = re.compile(r"(?<![&>])&\d>")


def command_notes(command: str) -> Iterator[tuple[str, str]]:
    """What in a command is probably a slip."""
    if "\u00a0" in command:
        yield "no_break_space", "holds a no-break space (U+00A0): the shell takes it for a letter"
    if _BACKGROUND.search(command):
        yield "redirection", "&2> runs the command in the background; 2>&1 or 2> may be meant"
    if len(command) > _LONGEST:
        yield "long_line", f"cron refuses a command of more than {_LONGEST} characters"
    if command.startswith("ID="):
        yield "other_option", "ID= is an option of another cron; here it sets a shell variable"
    try:
        shlex.split(command, comments=True)
    except ValueError as e:
        yield "quotes", f"the shell cannot read it: {str(e).lower()}"
