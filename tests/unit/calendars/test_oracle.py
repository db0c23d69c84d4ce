"""Calendars hold what a walk over the wall clock says that they hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from tests.support.calendar_oracle import belongs, matches, minutes

from tickrail.core.calendars import calendar_document, parse_calendar
from tickrail.core.errors import InvalidInputError
from tickrail.core.recurrence_rules import RuleError, parse_rule

T = TypeVar("T")

ZONES = [
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"),
    *("America/St_Johns", "Asia/Kathmandu", "Antarctica/Troll", "America/Sao_Paulo"),
    *("Africa/Cairo", "Africa/Casablanca", "America/Nuuk"),
]
CHANGES = [
    "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z",
    "2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z", "2011-12-30T10:00:00Z", "2010-11-07T03:31:00Z",
    "2018-11-04T03:00:00Z", "2018-02-18T02:00:00Z", "2026-04-23T22:00:00Z", "2028-02-29T00:00:00Z",
    "2026-12-31T23:00:00Z", "2023-10-29T00:00:00Z", "2026-02-15T02:00:00Z",
]  # fmt: skip
DAYS = st.dates(date(2009, 12, 1), date(2029, 1, 31)).map(date.isoformat)
CLOCK = st.sampled_from(
    ["00:00", "00:30", "01:00", "01:30", "02:00", "02:15:30", "03:00", "12:00", "22:00", "23:59"]
)
WEEKDAY = st.sampled_from(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
MONTH_DAY = st.dates(date(2028, 1, 1), date(2028, 12, 31)).map(lambda d: f"{d:%m-%d}")
BYDAY = st.sampled_from(["MO", "TU,WE", "SA,SU", "MO,TU,WE,TH,FR"])
NUMBERED = st.sampled_from(["1MO", "2TU", "-1FR", "4TH,-1SU", "5WE", "MO,2TU"])


def ranges(one: st.SearchStrategy[str], *, ordered: bool) -> st.SearchStrategy[Any]:
    pair = st.tuples(one, one).map(sorted if ordered else list)
    return one | pair.map(lambda p: {"from": p[0], "to": p[1]})


@st.composite
def rules(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = {"FREQ": frequency, "INTERVAL": str(draw(st.integers(1, 5)))}
    if draw(st.booleans()):
        parts["BYMONTH"] = draw(st.sampled_from(["2", "3,10", "12", "1,2,3,4,5,6"]))
    if frequency != "WEEKLY" and draw(st.booleans()):
        parts["BYMONTHDAY"] = draw(st.sampled_from(["1", "13", "-1", "29,30,31", "1,15,-5"]))
    if draw(st.booleans()):
        several = frequency in ("MONTHLY", "YEARLY")
        parts["BYDAY"] = draw(BYDAY | NUMBERED if several else BYDAY)
    if frequency == "YEARLY" and draw(st.integers(0, 3)) == 0:
        parts["BYYEARDAY"] = draw(st.sampled_from(["1,100,200", "-1", "60", "366"]))
    if frequency in ("MONTHLY", "YEARLY") and "BYDAY" in parts and draw(st.booleans()):
        parts["BYSETPOS"] = draw(st.sampled_from(["1", "-1", "1,3", "2,-2"]))
    if draw(st.integers(0, 2)) == 0:
        parts["WKST"] = draw(st.sampled_from(["SU", "WE"]))
    end = draw(st.sampled_from(["", "COUNT", "UNTIL"]))
    if end == "COUNT":
        parts["COUNT"] = str(draw(st.integers(1, 4)))
    if end == "UNTIL":
        parts["UNTIL"] = draw(st.dates(date(2011, 1, 1), date(2028, 12, 31))).strftime("%Y%m%d")
    return ";".join(f"{k}={v}" for k, v in parts.items())


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    day = draw(st.dates(date(2009, 12, 1), date(2027, 1, 31)))
    kind = draw(st.sampled_from(["date", "local", "instant"]))
    if kind == "date":
        long = timedelta(days=draw(st.integers(1, 9)))
        found: dict[str, Any] = {"start": day.isoformat(), "end": (day + long).isoformat()}
    else:
        start = datetime.combine(day, datetime.min.time()) + timedelta(
            minutes=draw(st.sampled_from([0, 90, 120, 150, 1439]))
        )
        end = start + timedelta(minutes=draw(st.sampled_from([30, 60, 1440, 4000])))
        z = "Z" if kind == "instant" else ""
        found = {"start": start.isoformat() + z, "end": end.isoformat() + z}
    if kind != "instant" and draw(st.booleans()):
        found["time_zone"] = draw(st.sampled_from(ZONES))
    if draw(st.booleans()):
        found["rrule"] = draw(rules())
        if draw(st.booleans()):
            found["except"] = [found["start"]]
    return found


WINDOWS = st.tuples(CLOCK, CLOCK | st.just("24:00"), st.lists(WEEKDAY, max_size=3)).filter(
    lambda w: w[0] != w[1]
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    window = WINDOWS.map(
        lambda w: {"from": w[0], "to": w[1], **({"weekdays": w[2]} if w[2] else {})}
    )
    return {
        "time_zone": draw(st.sampled_from(ZONES)),
        "dates": draw(st.lists(ranges(DAYS, ordered=True), max_size=2)),
        "yearly": draw(st.lists(ranges(MONTH_DAY, ordered=False), max_size=2)),
        "weekdays": draw(st.lists(WEEKDAY, max_size=2)),
        "windows": draw(st.lists(window, max_size=2)),
        "events": draw(st.lists(events(), max_size=2)),
    }


NEAR = st.tuples(st.sampled_from(CHANGES), st.integers(-48 * 3600, 48 * 3600)).map(
    lambda p: datetime.fromisoformat(p[0]) + timedelta(seconds=p[1])
)
FIRST = datetime(2010, 1, 1, tzinfo=UTC)
INSTANTS = NEAR | st.integers(0, 19 * 366 * 86400).map(lambda s: FIRST + timedelta(seconds=s))


def readable(make: Callable[[], T]) -> T:
    """What is made; an example with a rule that ends too early, or never, is none."""
    try:
        return make()
    except (InvalidInputError, RuleError) as e:
        if re.search(r"COUNT=|UNTIL=", str(e)) is None:
            raise
        reject()


@settings(max_examples=100, deadline=None)
@given(documents(), INSTANTS)
@example(
    {"time_zone": "Pacific/Apia", "dates": ["2011-12-30"]}, datetime(2011, 12, 30, 10, tzinfo=UTC)
)
@example(
    {"time_zone": "Europe/Berlin", "windows": [{"from": "02:00", "to": "03:00"}]},
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
)
def test_a_stretch_is_what_the_wall_clock_says(document: dict[str, Any], at: datetime) -> None:
    made = readable(lambda: parse_calendar(document, name="a"))
    found = made.stretch(int(at.timestamp()))
    assert found.start <= int(at.timestamp()) < found.end
    assert found.inside == belongs(document, at)
    low = max(found.start, int((at - timedelta(hours=5)).timestamp()))
    high = min(found.end, int((at + timedelta(hours=7)).timestamp()))
    ends = [datetime.fromtimestamp(s, UTC) for s in (low, high)]
    wrong = [m for m in minutes(*ends) if belongs(document, m) != found.inside]
    assert wrong == []


@settings(max_examples=50, deadline=None)
@given(documents())
def test_the_canonical_document_reads_back_as_itself(document: dict[str, Any]) -> None:
    made = readable(lambda: parse_calendar(document, name="a"))
    again = parse_calendar(calendar_document(made), name="a")
    assert again == made


@settings(max_examples=100, deadline=None)
@given(rules(), st.dates(date(2010, 1, 1), date(2027, 12, 31)), st.integers(2010, 2030))
def test_a_rule_gives_the_days_that_a_walk_finds(rule: str, start: date, year: int) -> None:
    begin = datetime.combine(start, datetime.min.time())
    made = readable(lambda: parse_rule(rule, begin, lambda at: at))
    found = [at.date() for at in readable(lambda: list(made.starts(year)))]
    parts = dict(part.split("=") for part in rule.split(";"))
    until = datetime.strptime(parts.get("UNTIL", "99991231"), "%Y%m%d").date()  # noqa: DTZ007 - a local day
    day, seen, wanted = start, 0, []
    while day <= min(until, date(year, 12, 31)):
        if day == start or matches(parts, start, day):
            seen += 1
            if day.year == year and seen <= int(parts.get("COUNT", 10**9)):
                wanted.append(day)
        day += timedelta(days=1)
    assert found == wanted
