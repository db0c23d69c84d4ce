"""iCalendar files as events: what counts, what it becomes, and what is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tickrail.core.calendars import parse_calendar
from tickrail.core.errors import InvalidInputError
from tickrail.formats import decode_icalendar
from tickrail.formats.ics import read_icalendar

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def file(*events: str, head: str = "") -> str:
    """A file of events, each given as its lines between BEGIN and END."""
    body = "".join(f"BEGIN:VEVENT\nUID:u{i}\n{e}\nEND:VEVENT\n" for i, e in enumerate(events))
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n{head}{body}END:VCALENDAR\n"


def event(start: str, end: str, **more: Any) -> dict[str, Any]:
    return {"summary": "", "start": start, "end": end} | more


READ: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "a day": (["DTSTART;VALUE=DATE:20261224"], [event("2026-12-24", "2026-12-25")]),
    "several days, the last one not included": (
        ["DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227"],
        [event("2026-12-24", "2026-12-27")]),
    "a day that ends when it begins": (
        ["DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261224"],
        [event("2026-12-24", "2026-12-25")]),
    "a duration in days": (
        ["DTSTART;VALUE=DATE:20261224\nDURATION:P3D"], [event("2026-12-24", "2026-12-27")]),
    "a floating time": (
        ["DTSTART:20261224T100000\nDTEND:20261224T120000"],
        [event("2026-12-24T10:00:00", "2026-12-24T12:00:00")]),
    "an instant": (
        ["DTSTART:20261224T100000Z\nDURATION:PT2H"],
        [event("2026-12-24T10:00:00Z", "2026-12-24T12:00:00Z")]),
    "a time in a zone": (
        ["DTSTART;TZID=Europe/Berlin:20261224T100000\nDURATION:PT2H"],
        [event("2026-12-24T10:00:00", "2026-12-24T12:00:00", time_zone="Europe/Berlin")]),
    "a zone with a producer's prefix": (
        ["DTSTART;TZID=/example.org/20260101/Europe/Berlin:20261224T100000\nDURATION:PT2H"],
        [event("2026-12-24T10:00:00", "2026-12-24T12:00:00", time_zone="Europe/Berlin")]),
    "a zone by the name that Windows gives it": (
        ['DTSTART;TZID="W. Europe Standard Time":20261224T100000\nDURATION:PT2H'],
        [event("2026-12-24T10:00:00", "2026-12-24T12:00:00", time_zone="Europe/Berlin")]),
    "an end in another zone": (
        ["DTSTART;TZID=Europe/Berlin:20261224T100000\nDTEND;TZID=America/New_York:20261224T060000"],
        [event("2026-12-24T10:00:00", "2026-12-24T12:00:00", time_zone="Europe/Berlin")]),
    "a moment without length is left out": (
        ["DTSTART:20261224T100000Z", "DTSTART;VALUE=DATE:20261224"],
        [event("2026-12-24", "2026-12-25")]),
    "cancelled": (
        ["DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED", "DTSTART;VALUE=DATE:20261224"],
        [event("2026-12-24", "2026-12-25")]),
    "a series from before 1970": (
        ["DTSTART;VALUE=DATE:19580214\nRRULE:FREQ=YEARLY"],
        [event("1958-02-14", "1958-02-15", rrule="FREQ=YEARLY")]),
    "tentative counts": (
        ["DTSTART;VALUE=DATE:20261224\nSTATUS:TENTATIVE"], [event("2026-12-24", "2026-12-25")]),
    "shown as free counts": (
        ["DTSTART;VALUE=DATE:20261224\nTRANSP:TRANSPARENT"], [event("2026-12-24", "2026-12-25")]),
    "a folded line and escaped text": (
        ["DTSTART;VALUE=DATE:20261224\nSUMMARY:Holy\n  night\\, and more"],
        [event("2026-12-24", "2026-12-25", summary="Holy night, and more")]),
    "a rule with dates left out": (
        [("DTSTART;VALUE=DATE:20261224\nRRULE:FREQ=YEARLY\n"
         "EXDATE;VALUE=DATE:20271224,20291224\nEXDATE;VALUE=DATE:20281224")],
        [event("2026-12-24", "2026-12-25", rrule="FREQ=YEARLY",
               **{"except": ["2027-12-24", "2028-12-24", "2029-12-24"]})]),
    "an instant left out of a zone's times": (
        [("DTSTART;TZID=Europe/Berlin:20261224T100000\nDURATION:PT1H\nRRULE:FREQ=DAILY\n"
         "EXDATE:20261225T090000Z")],
        [event("2026-12-24T10:00:00", "2026-12-24T11:00:00", time_zone="Europe/Berlin",
               rrule="FREQ=DAILY", **{"except": ["2026-12-25T10:00:00"]})]),
    "a day left out of times": (
        ["DTSTART:20261224T100000\nDURATION:PT1H\nRRULE:FREQ=DAILY\nEXDATE;VALUE=DATE:20261225"],
        [event("2026-12-24T10:00:00", "2026-12-24T11:00:00", rrule="FREQ=DAILY",
               **{"except": ["2026-12-25T10:00:00"]})]),
    "further dates, one of them left out": (
        [("DTSTART;VALUE=DATE:20261224\nRDATE;VALUE=DATE:20261226,20261228,20261224\n"
         "EXDATE;VALUE=DATE:20261228")],
        [event("2026-12-24", "2026-12-25"), event("2026-12-26", "2026-12-27")]),
    "a further period": (
        [("DTSTART:20261224T100000Z\nDURATION:PT1H\n"
         "RDATE;VALUE=PERIOD:20261226T100000Z/PT3H,20261227T100000Z/20261227T101500Z")],
        [event("2026-12-24T10:00:00Z", "2026-12-24T11:00:00Z"),
         event("2026-12-26T10:00:00Z", "2026-12-26T13:00:00Z"),
         event("2026-12-27T10:00:00Z", "2026-12-27T10:15:00Z")]),
    "only a further date is left": (
        ["DTSTART;VALUE=DATE:20261224\nRDATE;VALUE=DATE:20261226\nEXDATE;VALUE=DATE:20261224"],
        [event("2026-12-26", "2026-12-27")]),
    "an alarm inside is no event": (
        [("DTSTART;VALUE=DATE:20261224\nBEGIN:VALARM\nACTION:DISPLAY\nDESCRIPTION:x\n"
         "TRIGGER:-PT15M\nEND:VALARM")], [event("2026-12-24", "2026-12-25")]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::icalendar.error.GloballyUniqueTZIDGuessed")
@pytest.mark.parametrize(("events", "wanted"), READ.values(), ids=READ.keys())
def test_what_an_event_becomes(events: list[str], wanted: list[dict[str, Any]]) -> None:
    found = read_icalendar(file(*events))
    assert found == {"events": wanted}
    again = parse_calendar(found, name="a", now=NOW).document["events"]
    assert [e["start"] for e in again] == [e["start"] for e in wanted]


def test_changed_occurrences_take_the_place_of_the_rules() -> None:
    text = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:1
SUMMARY:weekly
DTSTART;TZID=Europe/Berlin:20260105T220000
DURATION:PT2H
RRULE:FREQ=WEEKLY;BYDAY=MO
END:VEVENT
BEGIN:VEVENT
UID:1
SUMMARY:moved
RECURRENCE-ID:20260112T210000Z
DTSTART;TZID=Europe/Berlin:20260113T220000
DURATION:PT1H
END:VEVENT
BEGIN:VEVENT
UID:1
STATUS:CANCELLED
RECURRENCE-ID;TZID=Europe/Berlin:20260119T220000
DTSTART;TZID=Europe/Berlin:20260119T220000
DURATION:PT2H
END:VEVENT
BEGIN:VEVENT
UID:2
SUMMARY:another series
DTSTART:20260112T210000Z
DURATION:PT1H
END:VEVENT
END:VCALENDAR
"""
    weekly, moved, other = read_icalendar(text)["events"]
    assert weekly["except"] == ["2026-01-12T22:00:00", "2026-01-19T22:00:00"]
    assert moved["summary"] == "moved"
    assert (moved["start"], moved["end"]) == ("2026-01-13T22:00:00", "2026-01-13T23:00:00")
    assert other["summary"] == "another series"


def test_the_files_title_and_zone_are_taken() -> None:
    head = "X-WR-CALNAME:Bank holidays\nX-WR-TIMEZONE:Europe/London\n"
    found = read_icalendar(file("DTSTART;VALUE=DATE:20261225", head=head))
    assert found["description"] == "Bank holidays"
    assert found["time_zone"] == "Europe/London"
    nowhere = file("DTSTART;VALUE=DATE:20261225", head="X-WR-TIMEZONE:Nowhere\n")
    assert "time_zone" not in read_icalendar(nowhere)


def test_several_calendars_in_one_file_are_one() -> None:
    one, two = file("DTSTART;VALUE=DATE:20261225"), file("DTSTART;VALUE=DATE:20261226")
    assert [e["start"] for e in read_icalendar(one + two)["events"]] == ["2026-12-25", "2026-12-26"]


def test_a_files_own_definition_of_a_zone_is_not_read() -> None:
    zone = (
        "BEGIN:VTIMEZONE\r\nTZID:{}\r\nBEGIN:STANDARD\r\nDTSTART:16010101T000000\r\n"
        "TZOFFSETFROM:+0500\r\nTZOFFSETTO:+0500\r\nRRULE:FREQ=YEARLY\r\nEND:STANDARD\r\n"
        "END:VTIMEZONE\r\n"
    )
    start = "DTSTART;TZID={}:20261225T100000\nDURATION:PT1H"
    known = read_icalendar(file(start.format("Europe/Berlin"), head=zone.format("Europe/Berlin")))
    assert known["events"][0]["time_zone"] == "Europe/Berlin"
    with pytest.raises(InvalidInputError, match="unknown TZID 'Office'"):
        read_icalendar(file(start.format("Office"), head=zone.format("Office")))


def test_what_is_no_event_is_passed_over() -> None:
    text = file("DTSTART;VALUE=DATE:20261225").replace(
        "END:VCALENDAR", "BEGIN:VTODO\nUID:t\nDTSTART;VALUE=DATE:20260101\nEND:VTODO\nEND:VCALENDAR"
    )
    assert len(read_icalendar(text)["events"]) == 1


REFUSED = {
    "no calendar at all": ("hello", "is not iCalendar"),
    "nothing": ("", "holds no VCALENDAR"),
    "HTML": ("<html><body>Sign in</body></html>", "is not iCalendar"),
    "an event outside of one": ("BEGIN:VEVENT\nEND:VEVENT\n", "holds no VCALENDAR"),
    "cut off": (file("DTSTART;VALUE=DATE:20261225")[:-20], "cut off: END:VCALENDAR is missing"),
    "cut off in a line": (file("DTSTART;VALUE=DATE:20261225")[:-60], "END:VCALENDAR is missing"),
    "no event": (file(), "holds no event (has no VEVENT)"),
    "only tasks": (
        file().replace("END:VCAL", "BEGIN:VTODO\nUID:t\nEND:VTODO\nEND:VCAL"),
        "holds no event (has no VEVENT)"),
    "only moments and cancelled ones": (
        file("DTSTART:20261224T100000Z", "DTSTART;VALUE=DATE:20261224\nSTATUS:CANCELLED"),
        "holds no event (each VEVENT is cancelled or without length)"),
    "a rule without its colon": (
        file("DTSTART;VALUE=DATE:20261225\nRRULE FREQ=DAILY"), "line 7 is 'RRULE FREQ=DAILY'"),
    "an end without its colon": (
        file("DTSTART;VALUE=DATE:20261225\nSUMMARY:a\n  b\nDTEND 20260110"),
        "line 9 is 'DTEND 20260110'"),
    "no start": (file("SUMMARY:q"), "'q' has no DTSTART"),
    "an unreadable start": (file("SUMMARY:q\nDTSTART:soon"), "'q' has an unreadable DTSTART"),
    "a month that is not there": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261301"), "'q' has an unreadable DTSTART"),
    "a zone that nobody knows": (
        file("SUMMARY:q\nDTSTART;TZID=Office:20261224T100000\nDURATION:PT1H"),
        "'q' has the unknown TZID 'Office'"),
    "an end before the start": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261220"),
        "'q' ends before it starts"),
    "a day and a time": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261225\nDTEND:20261226T100000"),
        "'q' has a day as DTSTART or DTEND"),
    "an unreadable rule": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261225\nRRULE:FREQ=OFTEN"),
        "'q' has an unreadable RRULE"),
    "two rules": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY\nRRULE:FREQ=YEARLY"),
        "'q' has several RRULEs"),
    "a rule of exceptions": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY\nEXRULE:FREQ=YEARLY"),
        "'q' has an EXRULE"),
    "all later occurrences": (
        file("SUMMARY:q\nRECURRENCE-ID;RANGE=THISANDFUTURE:20261225T100000Z\n"
             "DTSTART:20261225T110000Z\nDURATION:PT1H"), "(RANGE)"),
    "floating and zoned together": (
        file("SUMMARY:q\nDTSTART:20261225T100000\nDURATION:PT1H\nRRULE:FREQ=DAILY\n"
             "EXDATE:20261226T100000Z"), "mixes floating times"),
    "two starts": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:20261225\nDTSTART;VALUE=DATE:20261226"),
        "'q' has a property twice"),
    "beyond all years": (
        file("SUMMARY:q\nDTSTART;VALUE=DATE:99991231\nDURATION:P9999D"), "leads out of the"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_the_event(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_icalendar(text)
    [problem] = caught.value.problems
    assert problem.pointer == "/icalendar"
    assert message in problem.message
    assert problem.expected


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "BEGIN:VTIMEZONE\n" * 60_000,
        "BEGIN:VCALENDAR\n" * 50_000,
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:" + "\n a" * 200_000,
    ],
    ids=["zones", "calendars", "folds"],
)
def test_a_file_that_is_meant_to_cost_is_refused_soon(text: str) -> None:
    with pytest.raises(InvalidInputError, match="VCALENDAR"):
        read_icalendar(text)


def test_a_file_has_a_bound() -> None:
    with pytest.raises(InvalidInputError, match="has 2001 events"):
        read_icalendar(file(*["DTSTART;VALUE=DATE:20261225"] * 2001))


def test_line_ends_of_any_kind() -> None:
    text = file("DTSTART;VALUE=DATE:20261225\nSUMMARY:a\n b")
    wanted = [event("2026-12-25", "2026-12-26", summary="ab")]
    for end in ("\n", "\r\n", "\r"):
        assert read_icalendar(text.replace("\n", end))["events"] == wanted


def test_a_character_may_be_folded_between_its_octets() -> None:
    text = file("DTSTART;VALUE=DATE:20261225\nSUMMARY:Dreikönig").encode()
    for end in (b"\r\n", b"\n", b"\r"):
        half = text.replace(b"\xc3\xb6", b"\xc3" + end + b" \xb6")
        [found] = read_icalendar(decode_icalendar(b"\xef\xbb\xbf" + half))["events"]
        assert found["summary"] == "Dreikönig"
    with pytest.raises(UnicodeDecodeError):
        decode_icalendar(b"\xc3 ")


def test_a_long_line_with_parameters_is_a_property() -> None:
    long = "ATTENDEE;CN=" + "\n ".join(["x" * 70] * 5) + ":mailto:a@example.org"
    assert len(read_icalendar(file(f"DTSTART;VALUE=DATE:20261225\n{long}"))["events"]) == 1


def test_a_series_from_before_1970_covers_days_of_today() -> None:
    found = read_icalendar(file("DTSTART;VALUE=DATE:19580214\nRRULE:FREQ=YEARLY"))
    made = parse_calendar(found, name="a", now=NOW)
    for day, inside in (("2027-02-14", True), ("2027-02-15", False)):
        assert made.contains(int(datetime.fromisoformat(f"{day}T12:00Z").timestamp())) is inside
