"""What is said of a mistake in a cron expression, to the letter: field, position, value, remedy."""

from __future__ import annotations

import pytest
from tests.support.schedules import at, days, fires, rows

from tickrail.core.cron import CronError, CronExpression
from tickrail.core.schedule import Cron

MISTAKES = rows("cron_mistakes.csv")


@pytest.mark.parametrize("row", MISTAKES, ids=[row["expression"] or "empty" for row in MISTAKES])
def test_mistake(row: dict[str, str]) -> None:
    with pytest.raises(CronError) as caught:
        CronExpression.parse(row["expression"])
    e = caught.value
    assert str(e) == row["message"]
    assert (e.field, str(e.position), e.value) == (row["field"], row["position"], row["value"])


def test_an_error_alone() -> None:
    e = CronError("is odd")
    assert str(e) == "is odd"
    assert (e.expected, e.field, e.position, e.value) == ("", "", 0, "")


@pytest.mark.parametrize(
    ("expression", "hours"),
    [
        ("0 9-17/4 L * *", [9, 13, 17]),
        ("0 7-7 L * *", [7]),
        ("0 20-2/3 L * *", [20, 23, 2]),
        ("0 22,5-6 L * *", [5, 6, 22]),
        ("0 */9 L * *", [0, 9, 18]),
        ("0 21/2 L * *", [21, 23]),
    ],
)
def test_our_own_reading_beside_a_form_that_only_we_read(expression: str, hours: list[int]) -> None:
    found = fires(Cron(expression, "UTC"), at("2026-01-30T23:59:59Z"), len(hours))
    assert sorted(int(text[11:13]) for text in found) == sorted(hours)


@pytest.mark.parametrize(
    ("weekday", "expected"),
    [
        ("0-7/3", [3, 4, 7]),
        ("5-7", [2, 3, 4]),
        ("6-1", [3, 4, 5]),
        ("7-1", [4, 5, 11]),
        ("5-2/2", [2, 4, 6]),
        ("3-2/6", [6, 7, 13]),
        ("1-7/6", [4, 5, 11]),
    ],
)
def test_our_own_reading_of_weekdays(weekday: str, expected: list[int]) -> None:
    """Beside `JAN,MAR-FEB` in the month field, which leaves no plain reading of the whole."""
    found = days(Cron(f"0 0 * MAR-FEB {weekday}", "UTC"), at("2026-01-01T12:00Z"), 3)
    assert [int(day[8:]) for day in found] == expected
