"""Crontabs of users and of the system, read as Debian's cron(8) reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tickrail.core.cron import ALIASES, CronError, CronExpression
from tickrail.core.crontab_lines import (
    LineError,
    Note,
    assignment,
    command_and_input,
    command_notes,
    time_fields,
    word,
)
from tickrail.core.lint import lint_expression
from tickrail.core.schedule_values import Cron
from tickrail.core.zones import UnknownZoneError, zone

__all__ = ["Crontab", "CrontabEntry", "CrontabProblem", "Note", "parse_crontab"]

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_VARIABLE = re.compile(r"\$[A-Za-z_{]")
_TOLD: Final = ("every_minute", "either_day", "wide_step")
_MAX_DESCRIPTION: Final = 4096
_REBOOT: Final = "@reboot"


@dataclass(frozen=True, slots=True)
class CrontabProblem:
    """A line that cron refuses."""

    line: int
    message: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class CrontabEntry:
    """One job of a crontab.

    `env` holds the assignments above the line, as they stand; `stdin` is None where the command
    gets no input; `notes` are the warnings about this line.
    """

    line: int
    schedule: Cron
    command: str
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    stdin: str | None = None
    description: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def zone(self) -> str:
        """The zone of the schedule."""
        return self.schedule.zone


@dataclass(frozen=True, slots=True)
class Crontab:
    """What a crontab holds: jobs, refused lines, warnings about lines that are no jobs."""

    entries: tuple[CrontabEntry, ...]
    errors: tuple[CrontabProblem, ...]
    notes: tuple[Note, ...]
    disabled: int
    """Comment lines that would be jobs."""
    reboot: int
    """Lines with @reboot, which are not imported."""

    @property
    def warnings(self) -> tuple[Note, ...]:
        """Every warning, by line."""
        found = [*self.notes, *(note for entry in self.entries for note in entry.notes)]
        return tuple(sorted(found, key=lambda note: note.line))


def parse_crontab(
    text: str, *, system: bool, default_zone: str, forced_zone: str | None = None
) -> Crontab:
    """Read a crontab.

    Args:
        text: the file; bytes that are not UTF-8 as lone surrogates (`surrogateescape`).
        system: whether each line names a user before the command (/etc/crontab, /etc/cron.d).
        default_zone: the zone above any CRON_TZ line.
        forced_zone: the zone of every line, whatever CRON_TZ says.
    """
    reader = _Reader(system, forced_zone or default_zone, forced=forced_zone is not None)
    lines = text.split("\n")
    if lines[-1]:
        reader.notes.append(
            Note(len(lines), "no_newline", "the last line has no newline: cron passes over it")
        )
    else:
        lines.pop()
    for number, line in enumerate(lines, 1):
        reader.line(number, line)
    return Crontab(
        tuple(reader.entries),
        tuple(reader.errors),
        tuple(reader.notes),
        reader.disabled,
        reader.reboot,
    )


@dataclass
class _Reader:
    """The state between lines: environment, zone, the comment above."""

    system: bool
    zone_name: str
    forced: bool
    zone_unknown: bool = False
    env: dict[str, str] = field(default_factory=dict)
    comment: list[str] = field(default_factory=list)
    in_comment: bool = False
    entries: list[CrontabEntry] = field(default_factory=list)
    errors: list[CrontabProblem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    disabled: int = 0
    reboot: int = 0

    def line(self, number: int, raw: str) -> None:
        """Take in one line."""
        text = raw.lstrip(" \t")
        if not text.strip():
            self.comment, self.in_comment = [], False
        elif text.startswith("#"):
            self._comment(text)
        else:
            self.in_comment = False
            carriage = text.endswith("\r")
            try:
                notes = self._line(number, text.rstrip("\r"))
            except LineError as e:
                self.errors.append(CrontabProblem(number, e.message, e.expected))
                notes = list(command_notes(text)) if "\u00a0" in text else []
            if carriage:
                notes.append(("crlf", "ends with a carriage return, left out here; cron keeps it"))
            self.notes += [Note(number, code, message) for code, message in notes]

    def _comment(self, text: str) -> None:
        """Count a disabled job, or keep the comment for the jobs below."""
        if not self.in_comment:
            self.comment, self.in_comment = [], True
        words = text.strip("#").strip()
        try:
            expression, rest, _ = _schedule(words)
            is_job = bool(rest) and (expression == _REBOOT or self._is_expression(expression))
        except LineError:
            is_job = False
        if is_job:
            self.disabled += 1
        elif words:
            self.comment.append(words.encode("utf-8", "replace").decode())

    @staticmethod
    def _is_expression(expression: str) -> bool:
        try:
            CronExpression.parse(expression)
        except ValueError:
            return False
        return True

    def _line(self, number: int, text: str) -> list[tuple[str, str]]:
        """Read an assignment or a job.

        Raises:
            LineError: cron refuses the line, or it holds what no job can hold.
        """
        _storable(text)
        found = assignment(text)
        if found is not None:
            notes = self._assign(*found)
            if text.rstrip().endswith("=") and not found[1]:
                notes.append(("empty_value", f'cron refuses this line: {found[0]}="" is empty'))
            return notes
        return self._job(number, text)

    def _assign(self, name: str, value: str) -> list[tuple[str, str]]:
        notes: list[tuple[str, str]] = []
        if name == "CRON_TZ":
            self._set_zone(value)
            return notes
        if name == "LOGNAME":
            return [("logname", "LOGNAME cannot be set: it is the user's name")]
        if name == "TZ":
            notes.append(("tz", "TZ is for the command only; CRON_TZ sets the schedule's zone"))
        elif name in ("MAILTO", "MAILFROM"):
            notes.append(("mail", f"{name}: output is not mailed, it is in the launch's log"))
        if _VARIABLE.search(value):
            notes.append(("not_expanded", f"{name}: cron does not expand variables in {value!r}"))
        if _NAME.fullmatch(name):
            self.env[name] = value
        else:
            notes.append(("name", f"{name!r} is no variable name and is left out"))
        return notes

    def _set_zone(self, value: str) -> None:
        try:
            self.zone_name = self.zone_name if self.forced else zone(value).name
            self.zone_unknown = False
        except UnknownZoneError as e:
            self.zone_unknown = True
            near = f"did you mean {' or '.join(e.nearest)}?" if e.nearest else "Europe/Berlin"
            raise LineError(f"CRON_TZ: {value!r} is not a time zone", near) from None

    def _job(self, number: int, text: str) -> list[tuple[str, str]]:
        if self.zone_unknown:
            # Under another zone than the one meant it would run at the wrong hour.
            raise LineError("stands below a CRON_TZ that is no time zone", "a CRON_TZ that is one")
        expression, rest, notes = _schedule(text)
        user = None
        if self.system:
            user, rest = word(rest)
            if not _USER.fullmatch(user):
                raise LineError(
                    f"{user!r} is no user name" if user else "names no user and no command",
                    "a user before the command; a user's own crontab is read without --system",
                )
        if not rest:
            raise LineError("has no command", "a command after the time fields")
        if expression == _REBOOT:
            self.reboot += 1
            return [("reboot", "@reboot is left out: there is no boot to follow")]
        try:
            parsed = CronExpression.parse(expression)
        except CronError as e:
            return [*notes, ("never_fires", f"left out: {e.message}")]  # cron takes it silently
        command, given = command_and_input(rest.rstrip("\r"))
        if given is not None:
            notes.append(("percent", "an unescaped % ends the command; the rest is its input"))
        notes += command_notes(command)
        if not self.system and command.startswith("root "):
            notes.append(("user_column", "the command begins with root: a system crontab?"))
        known = {code for code, _ in notes}
        notes += [n for n in lint_expression(parsed) if n[0] in _TOLD and n[0] not in known]
        self.entries.append(
            CrontabEntry(
                line=number,
                schedule=Cron(expression, self.zone_name),
                command=command,
                env=tuple(self.env.items()),
                user=user,
                stdin=given,
                description="\n".join(self.comment)[:_MAX_DESCRIPTION],
                notes=tuple(Note(number, code, message) for code, message in notes),
            )
        )
        return []


def _schedule(text: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Expression, rest of the line, notes.

    Raises:
        LineError: cron refuses it.
    """
    if not text.startswith("@"):
        return time_fields(text)
    name, rest = word(text)
    if name not in ALIASES and name != _REBOOT:
        raise LineError(f"{name!r} is not a name that cron knows", f"{', '.join(ALIASES)}")
    return name, rest, []


def _storable(text: str) -> None:
    """Refuse what no text of a job can hold.

    Raises:
        LineError: a NUL, or a byte that is not UTF-8.
    """
    for column, char in enumerate(text, 1):
        if char == "\0":
            raise LineError(f"holds a NUL at column {column}", "text without NUL")
        if "\ud800" <= char <= "\udfff":
            raise LineError(f"is not UTF-8 at column {column}", "text in UTF-8")
