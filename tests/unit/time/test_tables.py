"""Expressions found in the wild: those that are broken, and those that work."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from tests.support.schedules import refused, rows

from tickrail.core.errors import InvalidInputError
from tickrail.core.lint import lint
from tickrail.core.schedule import next_after, parse_schedule, schedule_document
from tickrail.core.words import in_words

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CRON_DIALECTS = {
    "unix5",
    "k8s",
    "github-actions",
    "quartz",
    "spring6",
    "robfig6",
    "at-name",
}
IN_ZONE = {"in_gap", "in_fold"}
NO_SCHEDULES = {
    "@once": "not a known name",
    "@every": "not a cron field",
    "@reboot": "no time to fire",
    "0 0 31 2 *": "never fires",
    "0 30 * * *": "hour (field 2): 30 does not exist",
    "0 0 10am 1,15 * ?": "hour (field 3): '10am' is no hour",
}
"""Rows of the corpus that are no schedule of ours, with the reason."""

BROKEN = rows("broken_expressions.csv")
CORPUS = [row for row in rows("cron_corpus.csv") if row["dialect"] in CRON_DIALECTS]


def _verdict(document: dict[str, str]) -> str:
    try:
        s = parse_schedule(document, job=None, now=NOW)
    except InvalidInputError as e:
        (problem,) = e.problems
        assert problem.pointer == "/schedule/cron"
        assert problem.message
        assert problem.expected
        return "refuse"
    codes = {warning.code for warning in lint(s, NOW)}
    if codes - IN_ZONE:
        return "lint"
    return "lint-in-zone" if codes else "accept"


@pytest.mark.parametrize("row", BROKEN, ids=[row["expression"] for row in BROKEN])
def test_broken_expression(row: dict[str, str]) -> None:
    if row["expected"] == "lint-in-zone":
        document = {"cron": row["expression"], "time_zone": "Europe/Berlin"}
        assert _verdict(document) == "lint-in-zone"
        assert _verdict({"cron": row["expression"]}) == "accept"
    else:
        assert _verdict({"cron": row["expression"]}) == row["expected"]


@pytest.mark.parametrize(
    ("expression", "message", "expected"),
    [
        ("60 * * * *", "minute (field 1): 60 does not exist", "0-59"),
        ("* * 0 * *", "day of month (field 3): 0 does not exist; it begins at 1", "1-31"),
        ("* * * 13 *", "month (field 4): 13 does not exist", "JAN-DEC"),
        ("* * * * 8", "weekday (field 5): 8 does not exist", "0 and 7 = Sunday"),
        ("0 0 0 * * 8", "weekday (field 6): 8 does not exist", "0 and 7 = Sunday"),
        ("61 0 0 * * *", "second (field 1): 61 does not exist", "0-59"),
        ("*/90 * * * *", "step 90 is wider than the field", '{"every": "90m"}'),
        ("0 0 * * monday", "'monday' is no weekday", "MON"),
        ("* ? * * *", "? is for the two day fields only", "*"),
        ("0 0 1,,2 * *", "empty item", "1-31"),
        ("R * * * *", "R is not offered", "H"),
        ("@every 5m", "not a cron field", '{"every": "5m"}'),
        ("TZ=UTC 0 0 * * *", "not part of an expression", "time_zone"),
        ("", "is empty", "5 fields"),
        ("0 0 * * *\u00a0", "U+00A0 at column 10", "5 fields"),
        ("0 0 * *\n*", "U+000A", "5 fields"),
        ("٣ * * * *", "U+0663", "letters"),
        ("0 0 * * " + "1," * 600 + "1", "characters", "1000"),
    ],
)
def test_messages_name_the_field_and_what_is_right(
    expression: str, message: str, expected: str
) -> None:
    (problem,) = refused({"cron": expression})
    assert message in problem.message
    assert expected in problem.expected


def _reason(expression: str) -> str | None:
    return NO_SCHEDULES.get(expression) or NO_SCHEDULES.get(expression.partition(" ")[0])


def test_corpus_is_accepted_and_has_a_next_run() -> None:
    refusals = 0
    for row in CORPUS:
        document = {"cron": row["expression"], "time_zone": row["time_zone"] or "UTC"}
        reason = _reason(row["expression"])
        if reason is not None:
            (problem,) = refused(document, now=NOW)
            assert reason in problem.message
            refusals += 1
            continue
        s = parse_schedule(document, job=None, now=NOW)
        assert s is not None
        assert next_after(s, NOW) is not None
        assert in_words(s)
        again = parse_schedule(schedule_document(s), job=None, now=NOW)
        assert again == s
    assert len(CORPUS) - refusals > 400


@pytest.mark.parametrize(
    "expression", ["0 0 31 2 *", "* * * 30 2 *", "0 0 L-30 2 *", "0 0 30W 2 *", "0 0 */30 2 1#5"]
)
def test_never_is_found_out_in_time(expression: str) -> None:
    started = time.process_time()
    refused({"cron": expression})
    assert time.process_time() - started < 0.1
