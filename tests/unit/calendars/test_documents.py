"""Calendars as people write them: what each entry covers, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tickrail.core.calendars import MAX_ENTRIES, Calendar, calendar_document, parse_calendar
from tickrail.core.errors import InvalidInputError
from tickrail.core.zones import FAR

NOW = datetime(2026, 11, 29, tzinfo=UTC)
BERLIN = {"time_zone": "Europe/Berlin"}


def made(**document: Any) -> Calendar:
    return parse_calendar(document, name="a", now=NOW)


def second(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def span(calendar: Calendar, text: str) -> str:
    """The stretch round an instant, as `+` or `-`, first second and the second after."""
    found = calendar.stretch(second(text))
    ends = [f"{datetime.fromtimestamp(s, UTC):%Y-%m-%dT%H:%M}" for s in found[1:] if abs(s) < FAR]
    return ("+ " if found.inside else "- ") + " ".join(ends)


COVERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({}, "2026-01-01T00:00Z", "- "),
    "one day in UTC": (
        {"dates": ["2026-12-24"]}, "2026-12-24T12:00Z", "+ 2026-12-24T00:00 2026-12-25T00:00"),
    "days on both sides of today": (
        {"dates": ["2026-12-24", "2026-12-27"]}, "2026-12-25T12:00Z",
        "- 2026-12-25T00:00 2026-12-27T00:00"),
    "days side by side are one stretch": (
        {"dates": ["2026-12-24", "2026-12-25"]}, "2026-12-24T12:00Z",
        "+ 2026-12-24T00:00 2026-12-26T00:00"),
    "the last day of a range belongs to it": (
        {"dates": [{"from": "2026-12-24", "to": "2026-12-26"}]}, "2026-12-26T23:59Z",
        "+ 2026-12-24T00:00 2026-12-27T00:00"),
    "a day of 23 hours, as far as its first offset": (
        BERLIN | {"dates": ["2026-03-29"]}, "2026-03-29T00:30Z",
        "+ 2026-03-28T23:00 2026-03-29T01:00"),
    "the rest of it": (
        BERLIN | {"dates": ["2026-03-29"]}, "2026-03-29T01:00Z",
        "+ 2026-03-29T01:00 2026-03-29T22:00"),
    "a day of 25 hours": (
        BERLIN | {"dates": ["2026-10-25"]}, "2026-10-25T22:59Z",
        "+ 2026-10-25T01:00 2026-10-25T23:00"),
    "a midnight that does not exist: the day begins behind the gap": (
        {"time_zone": "America/Sao_Paulo", "dates": ["2018-11-04"]}, "2018-11-04T03:00Z",
        "+ 2018-11-04T03:00 2018-11-05T02:00"),
    "the day that Apia left out": (
        {"time_zone": "Pacific/Apia", "dates": ["2011-12-30"]}, "2011-12-30T10:00Z",
        "- 2011-12-30T10:00 2012-03-31T14:00"),
    "a day that is left for an hour comes again": (
        {"time_zone": "America/St_Johns", "dates": ["2010-11-07"]}, "2010-11-07T03:00Z",
        "- 2010-11-07T02:31 2010-11-07T03:30"),
    "its first minute": (
        {"time_zone": "America/St_Johns", "dates": ["2010-11-07"]}, "2010-11-07T02:30Z",
        "+ 2010-11-07T02:30 2010-11-07T02:31"),
    "every year": (
        {"yearly": ["12-25"]}, "2041-12-25T01:00Z", "+ 2041-12-25T00:00 2041-12-26T00:00"),
    "29 February of a common year": (
        {"yearly": ["02-29"]}, "2027-03-01T00:00Z", "- 2027-01-01T00:00 2028-01-01T00:00"),
    "29 February of a leap year": (
        {"yearly": ["02-29"]}, "2028-02-29T00:00Z", "+ 2028-02-29T00:00 2028-03-01T00:00"),
    "from 29 February in a common year": (
        {"yearly": [{"from": "02-29", "to": "03-02"}]}, "2027-03-01T00:00Z",
        "+ 2027-03-01T00:00 2027-03-03T00:00"),
    "2100 is no leap year": (
        {"yearly": ["02-29"]}, "2100-03-01T00:00Z", "- 2100-01-01T00:00 2101-01-01T00:00"),
    "round the year": (
        {"yearly": [{"from": "12-24", "to": "01-02"}]}, "2026-01-02T23:00Z",
        "+ 2026-01-01T00:00 2026-01-03T00:00"),
    "weekends": (
        {"weekdays": ["sat", "sun"]}, "2026-11-29T12:00Z", "+ 2026-11-28T00:00 2026-11-30T00:00"),
    "every weekday is always": (
        {"weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}, "2026-11-29T12:00Z", "+ "),
    "a window of the day": (
        {"windows": [{"from": "09:00", "to": "17:30"}]}, "2026-11-29T12:00Z",
        "+ 2026-11-29T09:00 2026-11-29T17:30"),
    "round midnight, of the day on which it begins": (
        {"windows": [{"from": "22:00", "to": "06:00", "weekdays": ["fri"]}]}, "2026-11-28T05:59Z",
        "+ 2026-11-27T22:00 2026-11-28T06:00"),
    "and not of the day on which it ends": (
        {"windows": [{"from": "22:00", "to": "06:00", "weekdays": ["sat"]}]}, "2026-11-28T05:59Z",
        "- 2026-11-23T00:00 2026-11-28T22:00"),
    "round the end of the week": (
        {"windows": [{"from": "22:00", "to": "06:00", "weekdays": ["sun"]}]}, "2026-11-30T01:00Z",
        "+ 2026-11-30T00:00 2026-11-30T06:00"),
    "to the end of the day": (
        {"windows": [{"from": "18:00", "to": "24:00"}]}, "2026-11-29T23:59:59Z",
        "+ 2026-11-29T18:00 2026-11-30T00:00"),
    "a window whose hour is missing is not there": (
        BERLIN | {"windows": [{"from": "02:00", "to": "03:00"}]}, "2026-03-29T01:00Z",
        "- 2026-03-29T01:00 2026-03-29T22:00"),
    "a window that a gap begins in is shorter": (
        BERLIN | {"windows": [{"from": "01:30", "to": "04:00"}]}, "2026-03-29T00:45Z",
        "+ 2026-03-29T00:30 2026-03-29T01:00"),
    "a window whose hour comes twice is there twice, first": (
        BERLIN | {"windows": [{"from": "02:15", "to": "02:45"}]}, "2026-10-25T00:30Z",
        "+ 2026-10-25T00:15 2026-10-25T00:45"),
    "and second": (
        BERLIN | {"windows": [{"from": "02:15", "to": "02:45"}]}, "2026-10-25T01:30Z",
        "+ 2026-10-25T01:15 2026-10-25T01:45"),
    "a window of Lord Howe's half hour": (
        {"time_zone": "Australia/Lord_Howe", "windows": [{"from": "01:30", "to": "02:00"}]},
        "2026-04-04T15:10Z", "+ 2026-04-04T15:00 2026-04-04T15:30"),
    "an event of a day": (
        BERLIN | {"events": [{"start": "2026-12-24"}]}, "2026-12-24T12:00Z",
        "+ 2026-12-23T23:00 2026-12-24T23:00"),
    "an event in a zone of its own": (
        BERLIN | {"events": [{"start": "2026-12-24T10:00", "duration": "2h",
                              "time_zone": "America/New_York"}]}, "2026-12-24T16:00Z",
        "+ 2026-12-24T15:00 2026-12-24T17:00"),
    "an event between instants": (
        BERLIN | {"events": [{"start": "2026-12-24T10:00:00+02:00",
                              "end": "2026-12-24T09:00:00Z"}]}, "2026-12-24T08:30Z",
        "+ 2026-12-24T08:00 2026-12-24T09:00"),
    "an event by a rule": (
        {"events": [{"start": "2020-11-26", "rrule": "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"}]},
        "2026-11-26T08:30Z", "+ 2026-11-26T00:00 2026-11-27T00:00"),
    "but not where it is left out": (
        {"events": [{"start": "2020-11-26", "rrule": "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
                     "except": ["2026-11-26"]}]},
        "2026-11-26T08:30Z", "- 2026-01-01T00:00 2027-01-01T00:00"),
    "an occurrence that lasts into the next year": (
        {"events": [{"start": "2020-12-31T20:00", "duration": "10h", "rrule": "FREQ=YEARLY"}]},
        "2027-01-01T05:59Z", "+ 2027-01-01T00:00 2027-01-01T06:00"),
    "the last day of all": (
        {"dates": [{"from": "2026-01-01", "to": "9999-12-31"}]}, "9999-12-31T23:59Z",
        "+ 2026-01-01T00:00 10000"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "at", "wanted"), COVERS.values(), ids=COVERS.keys())
def test_what_an_entry_covers(document: dict[str, Any], at: str, wanted: str) -> None:
    calendar = parse_calendar(document, name="a", now=NOW)
    if wanted.endswith("10000"):
        found = calendar.stretch(second(at))
        assert found.inside
        assert found.end == second("9999-12-31T23:59:59+00:00") + 1
        return
    assert span(calendar, at) == wanted


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown field": ({"date": []}, "/date", "did you mean 'dates'?"),
    "another name": ({"name": "b"}, "/name", "'a', as in the path"),
    "a zone that is not there": (
        {"time_zone": "Europe/Berln"}, "/time_zone", "did you mean Europe/Berlin"),
    "no array": ({"dates": "2026-01-01"}, "/dates", "an array"),
    "a day that is not there": ({"dates": ["2026-02-29"]}, "/dates/0", "2026-12-24"),
    "a week": ({"dates": ["2026-W51-1"]}, "/dates/0", "2026-12-24"),
    "an empty time zone": ({"time_zone": ""}, "/time_zone", "such as Europe/Berlin"),
    "an event before 1900": ({"events": [{"start": "1899-12-31"}]}, "/events/0/start", "1900"),
    "a day before 1970": ({"dates": ["1969-12-31"]}, "/dates/0", "from 1970 to 9999"),
    "a range that ends first": (
        {"dates": [{"from": "2026-02-02", "to": "2026-02-01"}]}, "/dates/0/to", "the last day"),
    "half a range": ({"dates": [{"from": "2026-02-02"}]}, "/dates/0/to", "2026-12-24"),
    "a third end": (
        {"dates": [{"from": "2026-02-02", "to": "2026-02-03", "until": "x"}]}, "/dates/0/until",
        "one of from, to"),
    "a day that no year has": ({"yearly": ["02-30"]}, "/yearly/0", "MM-DD"),
    "a whole date in yearly": ({"yearly": ["2026-02-03"]}, "/yearly/0", "MM-DD"),
    "a weekday in full": ({"weekdays": ["monday"]}, "/weekdays/0", "did you mean 'mon'?"),
    "a weekday as a number": ({"weekdays": [1]}, "/weekdays/0", "one of fri, mon"),
    "an empty window": (
        {"windows": [{"from": "10:00", "to": "10:00"}]}, "/windows/0/to", '"00:00" to "24:00"'),
    "an hour that no day has": (
        {"windows": [{"from": "25:00", "to": "10:00"}]}, "/windows/0/from", "from 00:00 to 24:00"),
    "a window without its end": ({"windows": [{"from": "10:00"}]}, "/windows/0/to", "22:00"),
    "an event without a start": ({"events": [{"summary": "x"}]}, "/events/0/start", "2026-12-24"),
    "an event without a length": (
        {"events": [{"start": "2026-01-01T10:00"}]}, "/events/0/end", "an end or a duration"),
    "an event that ends before it begins": (
        {"events": [{"start": "2026-01-02", "end": "2026-01-01"}]}, "/events/0/end",
        "the first moment that is free again"),
    "an event with two kinds of time": (
        {"events": [{"start": "2026-01-02", "end": "2026-01-03T10:00"}]}, "/events/0/end",
        "as start is"),
    "end and duration": (
        {"events": [{"start": "2026-01-02", "end": "2026-01-03", "duration": "1d"}]},
        "/events/0/duration", "one of them"),
    "half a day of an event of days": (
        {"events": [{"start": "2026-01-02", "duration": "12h"}]}, "/events/0/duration",
        "whole days"),
    "a zone beside an instant": (
        {"events": [{"start": "2026-01-02T10:00:00Z", "duration": "1h", "time_zone": "UTC"}]},
        "/events/0/time_zone", "local day or time only"),
    "a rule that comes too often": (
        {"events": [{"start": "2026-01-02", "rrule": "FREQ=HOURLY"}]}, "/events/0/rrule",
        "FREQ=DAILY or longer"),
    "a rule of a word": (
        {"events": [{"start": "2026-01-02", "rrule": "weekly"}]}, "/events/0/rrule", "NAME=VALUE"),
    "a rule with an unknown part": (
        {"events": [{"start": "2026-01-02", "rrule": "FREQ=DAILY;BYMOON=1"}]}, "/events/0/rrule",
        "BYMONTH"),
    "a rule with an end before its start": (
        {"events": [{"start": "2026-01-02", "rrule": "FREQ=DAILY;UNTIL=20260101"}]},
        "/events/0/rrule", "not before its start"),
    "a rule whose count is never reached": (
        {"events": [{"start": "2026-01-31", "rrule": "FREQ=YEARLY;BYMONTH=2;COUNT=9"}]},
        "/events/0/rrule", "UNTIL"),
    "weekday numbers in a rule by weeks": (
        {"events": [{"start": "2026-01-02", "rrule": "FREQ=WEEKLY;BYDAY=2MO"}]},
        "/events/0/rrule", "without a number"),
    "an hour in a rule": (
        {"events": [{"start": "2026-01-02T10:00", "duration": "1h",
                     "rrule": "FREQ=DAILY;BYHOUR=10,12"}]}, "/events/0/rrule",
        "one event for each time"),
    "an occurrence of more than a year": (
        {"events": [{"start": "2026-01-02", "duration": "400d", "rrule": "FREQ=YEARLY"}]},
        "/events/0/end", "earlier"),
    "something left out of nothing": (
        {"events": [{"start": "2026-01-02", "except": ["2026-01-02"]}]}, "/events/0/except",
        "an rrule beside it"),
    "a time left out of days": (
        {"events": [{"start": "2026-01-02", "rrule": "FREQ=DAILY",
                     "except": ["2026-01-02T10:00"]}]},
        "/events/0/except/0", "as start is"),
    "U+0000": ({"description": "a\u0000b"}, "/description", "without U+0000"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "pointer", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_its_place_and_what_would_be_right(
    document: dict[str, Any], pointer: str, expected: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_calendar(document, name="a", now=NOW)
    [problem] = caught.value.problems
    assert problem.pointer == pointer
    assert expected in problem.expected


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        made(dates=["x"], yearly=["y"], weekdays=["z"], windows=[{}], events=[{}], more=1)
    places = [p.pointer for p in caught.value.problems]
    assert places == [
        "/dates/0", "/yearly/0", "/weekdays/0", "/windows/0/from", "/windows/0/to",
        "/events/0/start", "/more",
    ]  # fmt: skip


def test_no_document_makes_problems_without_bound() -> None:
    with pytest.raises(InvalidInputError) as caught:
        made(dates=["x"] * 4000)
    assert len(caught.value.problems) <= 60


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"dates": ["2026-01-01"] * (MAX_ENTRIES + 1)}, f"at most {MAX_ENTRIES}"),
        ({"events": [{"start": "2026-01-01"}] * 2001}, "2000 of them events"),
        ({"events": [{"start": "2026-01-01", "except": ["x"] * 5000}]}, f"at most {MAX_ENTRIES}"),
        ({"events": [{"start": "2026-01-01", "summary": "é" * 500}] * 280}, "at most 262144"),
    ],
)  # fmt: skip
def test_a_calendar_has_bounds(document: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_calendar(document, name="a", now=NOW)
    [problem] = caught.value.problems
    assert expected in problem.expected


def test_rules_that_cost_too_much_in_sum_are_refused_by_name() -> None:
    daily = [
        {"summary": f"event {i}", "start": "2026-01-01", "rrule": "FREQ=DAILY"} for i in range(60)
    ]
    with pytest.raises(InvalidInputError) as caught:
        made(events=daily)
    [problem] = caught.value.problems
    assert problem.pointer == "/events/33/rrule"
    assert "'event 33'" in problem.message
    # One that is stored was counted when it was saved.
    assert parse_calendar({"events": daily}, name="a").contains(second("2026-05-05T00:00Z"))


def test_a_rule_that_never_matches_costs_no_more_than_another() -> None:
    never = {"start": "2026-01-31", "rrule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}
    calendar = made(events=[never])
    assert calendar.stretch(second("9990-06-01T00:00Z")).inside is False
    assert calendar.contains(second("2026-01-31T10:00Z"))  # the event's own start


def test_the_canonical_document_has_each_default_and_one_order() -> None:
    calendar = made(
        dates=["2026-12-27", {"from": "2026-12-24", "to": "2026-12-24"}, "2026-12-27"],
        weekdays=["sun", "mon"],
        windows=[{"from": "22:00:00", "to": "06:00", "weekdays": []}],
        events=[{"start": "2026-12-24T10:00:00+01:00", "duration": "90m", "rrule": "freq=daily;"}],
    )
    assert calendar_document(calendar) == {
        "name": "a",
        "description": "",
        "time_zone": "UTC",
        "dates": ["2026-12-24", "2026-12-27"],
        "yearly": [],
        "weekdays": ["mon", "sun"],
        "windows": [{"from": "22:00", "to": "06:00"}],
        "events": [
            {
                "summary": "",
                "start": "2026-12-24T09:00:00Z",
                "end": "2026-12-24T10:30:00Z",
                "rrule": "FREQ=DAILY",
            }
        ],
    }


def test_an_until_in_utc_is_read_on_the_events_clock() -> None:
    rule = "FREQ=DAILY;UNTIL=20260103T090000Z"
    event = {"start": "2026-01-01T10:00", "duration": "1h", "rrule": rule}
    assert made(**BERLIN, events=[event]).contains(second("2026-01-03T09:30Z"))
    earlier = event | {"rrule": "FREQ=DAILY;UNTIL=20260103T085959Z"}
    assert not made(**BERLIN, events=[earlier]).contains(second("2026-01-03T09:30Z"))
