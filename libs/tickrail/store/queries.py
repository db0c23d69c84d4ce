"""The hot statements: named, in files, a sentence each.

A file of `sql/` holds blocks that begin with `-- name: <name>` and a comment that says what the
statement does. Text from users never becomes part of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString

import orjson

_BLOCK = re.compile(
    r"^-- name: (?P<name>[a-z_]+)\n(?P<body>.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL
)


@cache
def load(file: str) -> dict[str, LiteralString]:
    """The statements of `sql/<file>.sql` by name.

    Raises:
        ValueError: a name stands twice, or a statement has no sentence.
    """
    text = (files("tickrail.store") / "sql" / f"{file}.sql").read_text("utf-8")
    found: dict[str, LiteralString] = {}
    for block in _BLOCK.finditer(text):
        name, body = block["name"], block["body"].strip()
        if name in found:
            raise ValueError(f"{file}.sql: statement {name} stands twice")
        if not body.startswith("-- "):
            raise ValueError(f"{file}.sql: statement {name} has no sentence")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        found[name] = "\n".join(lines).strip()
    return found


def json_text(value: Mapping[str, Any] | None) -> str | None:
    """A document as one value of an array of texts, for a statement that writes many rows."""
    return None if value is None else orjson.dumps(value).decode()


def rows_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as one document, for a statement that writes many of them."""
    return orjson.dumps(rows).decode()
