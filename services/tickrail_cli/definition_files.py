"""Definitions kept in files: read from files, folders and standard input, variables filled in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import yaml

from tickrail_cli.files import parse_json, read_text
from tickrail_cli.variables import Hidden, VariableError, expand, hidden_in
from tickrail_cli.yaml_documents import YamlDocument, parse_stream

ENDINGS = (".yaml", ".yml", ".json")
STDIN = "-"
_MARK = re.compile(r"\$\{[^}]*")


@dataclass(frozen=True)
class Source:
    """A document and where it stands.

    Attributes:
        file: as it was named; `stdin` for standard input.
        document: the JSON value.
        line: on which it begins; 0 where that is not known.
        hidden: the values of variables in it.
    """

    file: str
    document: Any
    line: int = 0
    hidden: Hidden = field(default_factory=Hidden, repr=False, compare=False)
    _yaml: YamlDocument | None = field(default=None, repr=False, compare=False)

    def where(self, pointer: str = "") -> str:
        """`file:line` of what a JSON pointer into the document names."""
        line = self._yaml.line_of(pointer) if self._yaml is not None else self.line
        return f"{self.file}:{line}" if line else self.file


def read_sources(paths: Iterable[str], variables: Mapping[str, str]) -> list[Source]:
    """Every document of these files; folders are looked through in the order of names.

    In folders, files and folders that begin with a dot are left out, and all but `.yaml`, `.yml`
    and `.json`.

    Args:
        paths: files, folders, or `-` for standard input.
        variables: what `${NAME}` stands for.

    Raises:
        click.ClickException: a file cannot be read, or a folder holds no document; names the file
            and the line.
    """
    found: list[Source] = []
    for path in paths:
        here = [source for file in _files(path) for source in _read(file, variables)]
        if not here:
            raise click.ClickException(f"{path}: there is no document")
        found += here
    return found


def _files(path: str) -> Iterator[str]:
    if path == STDIN or not Path(path).is_dir():
        yield path
        return
    for folder, inner, files in os.walk(path):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(ENDINGS) and not name.startswith("."):
                yield str(Path(folder) / name)


def _read(file: str, variables: Mapping[str, str]) -> list[Source]:
    text, shown = read_text(file), "stdin" if file == STDIN else file

    def fill(value: str, line: int) -> str:
        try:
            return expand(value, variables)
        except VariableError as e:
            raise click.ClickException(f"{shown}:{line}: {e}") from None

    if file.endswith(".json") or (file == STDIN and text.lstrip()[:1] in ("{", "[")):
        written = parse_json(text, shown)
        return list(_each(Source(shown, _filled(written, text, fill), 1), written, variables))
    found = _stream(shown, text, fill)
    as_written = _stream(shown, text, lambda value, _: value) if "${" in text else found
    return [
        one
        for d, before in zip(found, as_written, strict=True)
        for one in _each(Source(shown, d.value, d.line, _yaml=d), before.value, variables)
    ]


def _each(source: Source, written: Any, variables: Mapping[str, str]) -> Iterator[Source]:  # noqa: ANN401 - any JSON
    """The documents of an array of them, each with the values of variables in it."""
    if isinstance(source.document, list):
        for document, before in zip(source.document, written, strict=True):
            yield Source(source.file, document, source.line, hidden_in(before, variables))
    else:
        yield replace(source, hidden=hidden_in(written, variables))


def _stream(file: str, text: str, fill: Any) -> list[YamlDocument]:  # noqa: ANN401 - a function
    try:
        return parse_stream(text, fill)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        at = f":{mark.line + 1}" if mark else ""
        raise click.ClickException(f"{file}{at}: not valid YAML: {e.problem}") from None
    except RecursionError:
        raise click.ClickException(f"{file}: not valid YAML: nested too deep") from None
    except (yaml.YAMLError, ValueError) as e:
        raise click.ClickException(f"{file}: not valid YAML: {e}") from None


def _filled(value: Any, text: str, fill: Any) -> Any:  # noqa: ANN401 - any JSON, a function
    """A JSON value whose texts are filled in."""
    if isinstance(value, dict):
        return {key: _filled(inner, text, fill) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, text, fill) for inner in value]
    if isinstance(value, str) and "${" in value:
        mark = _MARK.search(value)
        # As the file writes it; where that is not found, the line is that of the document.
        at = text.find(json.dumps(mark[0], ensure_ascii=False)[1:-1]) if mark else -1
        return fill(value, text.count("\n", 0, at) + 1 if at >= 0 else 1)
    return value
