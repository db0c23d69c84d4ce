"""Output as text that a database can keep."""

from __future__ import annotations

import pytest

from tickrail.core.execution import BODY_BYTES, MESSAGE_CHARS, bounded_text, one_line


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"plain", "plain"),
        ("ä☃".encode(), "ä☃"),
        (b"a\x00b", "a\ufffdb"),
        (b"\xff", "\ufffd"),
    ],
)
def test_text(raw: bytes, text: str) -> None:
    assert bounded_text(raw) == bounded_text(raw, tail=True) == text


@pytest.mark.parametrize(
    "raw", [b"\xff" * 10_000, b"\x00" * 10_000, "☃".encode() * 5000, b"x" * 9999]
)
@pytest.mark.parametrize("tail", [True, False])
def test_the_bound_holds_after_replacing(raw: bytes, tail: bool) -> None:
    text = bounded_text(raw, tail=tail)
    assert BODY_BYTES - 8 < len(text.encode()) <= BODY_BYTES


def test_head_and_tail() -> None:
    raw = b"first" + b"." * 10_000 + b"last"
    assert bounded_text(raw).startswith("first")
    assert bounded_text(raw, tail=True).endswith("last")


def test_one_line() -> None:
    assert one_line("a\n  b\x00\tc\u2028d") == "a b c d"
    assert len(one_line("x" * 9999)) == MESSAGE_CHARS
