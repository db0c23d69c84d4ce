"""The kinds of value that settings have, and how passwords in them are hidden."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tickrail.core.durations import parse_duration

_URL_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^@\s]+@")
_WORD_PASSWORD = re.compile(r"(password=)('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


def _seconds(value: object) -> object:
    """`90`, `"90"`, `"1m30s"` -> 90.0; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return parse_duration(value).total_seconds()


def _items(value: object) -> object:
    """`"a, b"` -> `("a", "b")`."""
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Names = Annotated[tuple[str, ...], BeforeValidator(_items)]
Port = Annotated[int, Field(ge=0, le=65535)]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", examples=["tickrail"])]
TargetKind = Literal["webhook", "kafka", "command", "task", "noop"]
Kinds = Annotated[tuple[TargetKind, ...], BeforeValidator(_items)]


def secret_field(description: str) -> Any:  # noqa: ANN401 - what pydantic.Field returns
    """A text that is shown nowhere and is no flag."""
    return Field(default="", repr=False, description=description)


def mask_url(text: str) -> str:
    """The text with each password of a URL or of a libpq keyword string replaced."""
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1***@", text)
    return _WORD_PASSWORD.sub(r"\1***", text) if "password=" in text.lower() else text
