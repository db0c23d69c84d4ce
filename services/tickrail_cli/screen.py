"""What `tickrail up` shows: the processes' lines in one form, and the screen at the end."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tickrail.core.clock import Clock
from tickrail.runtime.log import mask_text
from tickrail_cli.children import TARGETS_FILE

_LEVELS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_PROCESSES = {"api": "34", "scheduler": "35", "worker": "36"}
_TAKEN = ("time", "level", "process", "event", "exception")
_WIDTH = 12
_LAYOUT = "\n\t"


class Lines:
    """Takes the lines of every process and writes them whole, one after the other.

    Args:
        color: a coloured form for people; JSON lines else.
        clock: dates the lines that are not JSON.
        stream: where to; standard error, looked up at each line, by default.
    """

    def __init__(self, *, color: bool, clock: Clock, stream: TextIO | None = None) -> None:
        self._color = color
        self._clock = clock
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, process: str, line: str) -> None:
        """Write one line of a process."""
        if not line.strip():
            return
        event = _event(line)
        if event is None:
            text = self._plain(process, line)
        else:
            text = colored(event) if self._color else line
        out = self._stream or sys.stderr
        with self._lock:
            try:
                out.write(text + "\n")
                out.flush()
            except (OSError, ValueError):
                return  # nobody reads any more; the processes go on

    def _plain(self, process: str, line: str) -> str:
        """A line that a library or Python itself wrote."""
        at = self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {"time": at, "level": "warning", "process": process, "event": mask_text(line)}
        return colored(event) if self._color else json.dumps(event, ensure_ascii=False)


def _event(line: str) -> Mapping[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def colored(event: Mapping[str, Any]) -> str:
    """One line for a person: clock, level, process, what happened, the rest."""
    process, level = str(event.get("process", "")), str(event.get("level", ""))
    hue = next((c for kind, c in _PROCESSES.items() if process.startswith(kind)), "33")
    rest = "".join(
        f" \x1b[2m{key}=\x1b[0m{_value(value)}" for key, value in event.items() if key not in _TAKEN
    )
    line = (
        f"\x1b[2m{str(event.get('time', ''))[11:23]}\x1b[0m"
        f" \x1b[{_LEVELS.get(level, '0')}m{level:<7}\x1b[0m"
        f" \x1b[{hue}m{process:<{_WIDTH}}\x1b[0m \x1b[1m{_text(event['event'])}\x1b[0m{rest}"
    )
    trace = event.get("exception")
    return f"{line}\n{_text(trace, keep=_LAYOUT)}" if trace else line


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = _text(text)
    return json.dumps(shown, ensure_ascii=False) if not shown or " " in shown else shown


def _text(value: object, keep: str = "") -> str:
    """Without what would move the cursor or change colours."""
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in str(value))


def program() -> str:
    """How a person calls `tickrail` from the current folder."""
    beside = Path(sys.executable).with_name("tickrail")
    found = shutil.which("tickrail")
    if found is not None and Path(found).exists() and Path(found).samefile(beside):
        return "tickrail"
    here = Path.cwd()
    inside = beside.is_relative_to(here)
    return shlex.quote(str(beside.relative_to(here) if inside else beside))


def screen(
    *, api: str, key: str, data_dir: Path, addresses: Mapping[str, str], missing: Mapping[str, str]
) -> str:
    """The screen that `up` ends with.

    Args:
        api: where the API is.
        key: the tenant's key.
        data_dir: the folder.
        addresses: of the servers, by name.
        missing: what does not work yet, by process.
    """
    here = Path.cwd()
    shown = data_dir.relative_to(here) if data_dir.is_relative_to(here) else data_dir
    tickrail = program()
    usual = data_dir == (here / ".tickrail").resolve()
    lines = [
        "",
        "Tickrail runs." if not missing else "Tickrail runs, but not all of it is ready:",
        *(f"  {name}: {what}" for name, what in missing.items()),
        "",
        f"  API      {api}",
        f"  Docs     {api}/docs",
        f"  Key      {key}",
        f"           (tenant default; kept in {shown / 'client.toml'}, where tickrail finds it)",
        *(f"  {name:<8} {where}" for name, where in addresses.items()),
        f"  Metrics  {shown / TARGETS_FILE} (targets, for Prometheus's file_sd_configs)",
        f"  Data     {shown}",
        "",
        "Try in another terminal" + (", in this folder:" if usual else ":"),
        "",
        *([] if usual else [f"  export TICKRAIL_DATA_DIR={shlex.quote(str(data_dir))}"]),
        f"  {tickrail} jobs create --name hello --every 5s --shell 'date >> /tmp/tickrail-hello'",
        f"  {tickrail} launches list --follow",
        f"  {tickrail} jobs list",
        "",
        f"Stop with Ctrl-C, or: {tickrail} down"
        + ("" if usual else f" --data {shlex.quote(str(shown))}"),
        "",
    ]
    return os.linesep.join(lines)
