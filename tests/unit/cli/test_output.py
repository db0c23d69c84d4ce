from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from tickrail_cli.output import Column, cell, dump, local_time, printable


@pytest.mark.parametrize(
    ("text", "utc", "shown"),
    [
        ("2026-03-29T00:59:59Z", False, "2026-03-29 01:59:59"),
        ("2026-03-29T01:00:00.250Z", False, "2026-03-29 03:00:00"),
        ("2026-03-29T01:00:00Z", True, "2026-03-29 01:00:00Z"),
        ("soon\x1b[1m", False, "soon\ufffd[1m"),
    ],
)
def test_times_are_local_unless_utc_is_asked_for(text: str, utc: bool, shown: str) -> None:
    assert local_time(text, utc=utc, zone=ZoneInfo("Europe/Berlin")) == shown


def test_a_column_reaches_into_an_item() -> None:
    column = Column("x", "a.b")
    assert column.of({"a": {"b": 3}}) == 3
    assert column.of({"a": None}) is None
    assert cell(column, {"a": None}, utc=True).plain == "-"
    assert cell(Column("x", "a"), {"a": {"b": "ä"}}, utc=True).plain == '{"b": "ä"}'
    assert cell(Column("x", "a"), {"a": 0}, utc=True).plain == "0"


def test_what_would_move_the_cursor_is_replaced() -> None:
    assert printable("a\nb\rc\x07\u202e") == "a\nb\ufffdc\ufffd\ufffd"


def test_json_and_yaml_keep_the_order_and_the_text() -> None:
    answer = {"b": "ä", "a": None}
    assert dump(answer, "json") == '{\n  "b": "ä",\n  "a": null\n}'
    assert dump(answer, "yaml") == "b: ä\na: null"
