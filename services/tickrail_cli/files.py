"""Documents that a user hands over: JSON or YAML, from a file or standard input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml

from tickrail_cli.yaml_documents import parse_yaml

_MAX_FILE = 16 * 1024 * 1024
_TWICE = 2


def read_document(file: str) -> Any:  # noqa: ANN401 - any JSON
    """The document in a file; `-` is standard input. `.yaml` and `.yml` are YAML, the rest JSON.

    Raises:
        click.ClickException: it cannot be read; names line and column.
    """
    text = read_text(file)
    if file.endswith((".yaml", ".yml")):
        return _yaml(file, text)
    return parse_json(text, file)


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 - any JSON
    """JSON out of a text.

    Raises:
        click.ClickException: it is not JSON; names line and column.
    """
    try:
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_object)
    except _TwiceError as e:
        at = _second(text, e.key)
        raise click.ClickException(
            f"{where}{at}: not valid JSON: the key {e.key!r} is there twice"
        ) from None
    except json.JSONDecodeError as e:
        raise click.ClickException(
            f"{where}: line {e.lineno}, column {e.colno}: not valid JSON: {e.msg}"
        ) from None
    except RecursionError:
        raise click.ClickException(f"{where}: not valid JSON: nested too deep") from None
    except ValueError as e:
        raise click.ClickException(f"{where}: not valid JSON: {e}") from None


class _TwiceError(ValueError):
    """A key stands twice in an object."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _second(text: str, key: str) -> str:
    """`:line` of where a key stands twice, where there is no doubt: nowhere else in the file."""
    written = re.compile(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:")
    found = [match.start() for match in written.finditer(text)]
    return f":{text.count(chr(10), 0, found[1]) + 1}" if len(found) == _TWICE else ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _yaml(file: str, text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse_yaml(text)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise click.ClickException(f"{file}: {at}not valid YAML: {e.problem}") from None
    except RecursionError:
        raise click.ClickException(f"{file}: not valid YAML: nested too deep") from None
    except (yaml.YAMLError, ValueError) as e:
        raise click.ClickException(f"{file}: not valid YAML: {e}") from None


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8-sig")


def read_text(file: str, decode: Callable[[bytes], str] = _utf8) -> str:
    """The text of a file in UTF-8; `-` is standard input.

    Raises:
        click.ClickException: it cannot be read, is too long, or is not UTF-8.
    """
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_MAX_FILE + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(_MAX_FILE + 1)
    except OSError as e:
        raise click.ClickException(f"{file}: {e.strerror or e}") from None
    if len(raw) > _MAX_FILE:
        raise click.ClickException(f"{file}: longer than {_MAX_FILE} bytes")
    try:
        return decode(raw)
    except UnicodeDecodeError as e:
        raise click.ClickException(f"{file}: not UTF-8 text (byte {e.start})") from None
