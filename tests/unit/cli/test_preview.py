"""`tickrail preview` needs no server, and refuses in one line."""

from __future__ import annotations

import csv
from collections.abc import Mapping

import pytest
from tests.support.stub_api import StubApi
from tests.support.tree import ROOT
from tests.unit.cli.conftest import Tickrail

with (ROOT / "tests/data/broken_expressions.csv").open() as stream:
    BROKEN = list(csv.DictReader(stream))


@pytest.mark.parametrize("row", BROKEN, ids=[row["expression"] for row in BROKEN])
def test_each_expression_is_refused_in_one_line_or_shown(
    row: Mapping[str, str], tickrail: Tickrail, api: StubApi
) -> None:
    start = ("--from", "2026-01-01T00:00:00Z")
    words = (row["expression"], "--tz", "Europe/Berlin", *start, "-n", "2", "--output", "json")
    said = tickrail("preview", *words)
    assert api.asked == []
    if row["expected"] == "refuse":
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("Error: /")
        assert said.err.count("\n") == 1
        return
    assert (said.code, said.err) == (0, "")
    answer = said.json()
    assert [set(item) for item in answer["items"]] == [{"at", "local", "notes"}] * 2
    if row["expected"].startswith("lint"):
        assert answer["warnings"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-1 * * * *",), "Error: /cron: minute"),
        (("-n", "2", "-1"), "Error: /cron: "),
        (("-n 5 * * *", "--tz", "Europe/Berlin"), "Error: /cron: "),
        (("0 2 * * *", "--from", "tomorrow"), "Error: --from: is 'tomorrow' (an instant such as"),
        (("0 2 * * *", "--from", "-1 x"), "Error: --from: is '-1 x' (an instant such as"),
        (("0 2 * * *", "--from", "0001-01-01T00:00:00+05:00"), "Error: --from: is '0001-"),
        (
            ("0 2 * * *", "--from", "1960-01-01"),
            "Error: --from: is '1960-01-01T00:00:00' (a time from",
        ),
        (("{", "--from", "2026-01-01"), "Error: the schedule is no JSON document:"),
        (("{}",), "Error: says no time (one of"),
        (
            ('{"every": "15m"}', "--tz", "Europe/Berlin"),
            "Error: --tz: has no meaning beside every (leave it out: an interval follows",
        ),
        (('{"every": "15m"}', "--gap", "skip"), "Error: --gap: has no meaning beside every"),
        (
            ('{"at": "2036-01-01T00:00:00Z", "time_zone": "Europe/Berlin"}',),
            "Error: /time_zone: has no meaning beside an instant with an offset (leave it out, or",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    tickrail: Tickrail, words: tuple[str, ...], said: str
) -> None:
    found = tickrail("preview", *words)
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith(said)
    assert found.err.count("\n") == 1


def test_what_begins_when_the_last_run_ended_has_one_run_that_is_known(tickrail: Tickrail) -> None:
    document = '{"every": "15m", "anchor": "2026-01-01T00:00:00Z", "measured_from": "completion"}'
    start = ("--from", "2026-01-01T00:00:00Z", "--output", "json")
    found = tickrail("preview", document, *start).json()
    assert [item["at"] for item in found["items"]] == ["2026-01-01T00:15:00Z"]
    assert found["words"].endswith("after the last run ended")


def test_a_schedule_that_has_passed_is_refused_in_the_words_of_the_api(tickrail: Tickrail) -> None:
    said = tickrail("preview", "0 0 0 1 1 ? 2020", "--from", "2026-01-01T00:00:00Z")
    assert said.err.startswith("Error: /cron: has no run after 2026-01-01T00:00:00Z")
