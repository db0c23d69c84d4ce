"""Random expressions against brute force over zoneinfo, round the transitions of many zones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import cron_oracle
from tests.support.cron_oracle import Fields, transitions, zone_info
from tests.support.schedules import cron

from tickrail.core.recurrence import walker_of
from tickrail.core.schedule import Cron, missed, next_after
from tickrail.core.zones import EPOCH, zone, zone_names

ZONES = (
    "America/New_York",
    "Europe/London",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "UTC",
    "Europe/Dublin",
    "Asia/Pyongyang",
)
FIRST, LAST = 2011, 2030
CENTURY_ENDS = [datetime(2026, 6, 1, tzinfo=UTC), datetime(2100, 2, 28, 12, tzinfo=UTC)]
BOUNDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

Field = tuple[str, frozenset[int]]


def _field(low: int, high: int, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Field:
    """A field's text and the values it means."""
    kind = draw(st.sampled_from(("star", "step", "one", "one", "list", "range", "wrap")))
    value = st.integers(low, high)
    if kind == "star":
        return "*", frozenset(range(low, high + 1))
    if kind == "step":
        step = draw(st.integers(1, high))
        return f"*/{step}", frozenset(range(low, high + 1, step))
    if kind == "one":
        one = draw(value)
        return str(one), frozenset((one,))
    if kind == "list":
        some = draw(st.lists(value, min_size=2, max_size=5))
        return ",".join(map(str, some)), frozenset(some)
    a, b = sorted((draw(value), draw(value)))
    step = draw(st.integers(1, 3))
    if kind == "range" or a == b:
        return f"{a}-{b}/{step}", frozenset(range(a, b + 1, step))
    order = [*range(b, high + 1), *range(low, a + 1)]
    return f"{b}-{a}/{step}", frozenset(order[::step])


@st.composite
def expressions(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[str, Fields]:
    """An expression with the values of its fields."""
    minute, hour = _field(0, 59, draw), _field(0, 23, draw)
    if draw(st.booleans()):  # an hour in which most zones change
        hour = draw(st.sampled_from([("0-3", range(4)), ("1,2", (1, 2)), ("23", (23,))]))
    anyday: Field = ("*", frozenset(range(1, 32)))
    month: Field = ("*", frozenset(range(1, 13)))
    weekday: Field = ("*", frozenset(range(7)))
    if draw(st.booleans()):
        anyday = _field(1, 31, draw)
    if draw(st.booleans()):
        weekday = _field(0, 6, draw)
    if draw(st.integers(0, 3)) == 0:
        month = _field(1, 12, draw)
    parts = (minute, hour, anyday, month, weekday)
    fields = Fields(
        minutes=frozenset(minute[1]),
        hours=frozenset(hour[1]),
        days=anyday[1],
        months=month[1],
        weekdays=weekday[1],
        wild=minute[0].startswith("*") or hour[0].startswith("*"),
        either=not (anyday[0].startswith("*") or weekday[0].startswith("*")),
    )
    return " ".join(part[0] for part in parts), fields


def _possible(fields: Fields) -> bool:
    if fields.either:
        return True
    return any(day <= 28 for day in fields.days) or bool(fields.months & {1, 3, 5, 7, 8, 10, 12})


@settings(BOUNDED, max_examples=300)
@given(
    expressions(),
    st.sampled_from(ZONES),
    st.integers(0, 10_000),
    st.sampled_from(("after", "shift", "skip")),
    st.sampled_from(("first", "second", "both")),
)
def test_walk_is_brute_force(
    expression: tuple[str, Fields], name: str, which: int, gap: str, fold: str
) -> None:
    text, fields = expression
    if not _possible(fields):
        return
    changes = transitions(name, FIRST, LAST) or CENTURY_ENDS
    middle = changes[which % len(changes)]
    low, high = middle - timedelta(hours=30), middle + timedelta(hours=30)
    expected = cron_oracle.due(fields, name, low, high, gap, fold)
    s = cron(text, name, gap=gap, fold=fold)
    walked: list[datetime] = []
    at = next_after(s, low)
    while at is not None and at <= high:
        walked.append(at)
        at = next_after(s, at)
    assert walked == expected
    found = missed(s, low, high, 3)
    if found is None:
        assert expected == []
    else:
        assert found.count == len(expected)
        assert list(found.oldest) == expected[:3]
        assert list(found.newest) == expected[-3:]


@settings(BOUNDED, max_examples=300)
@given(
    expressions(),
    st.sampled_from(ZONES),
    st.datetimes(datetime(1950, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - aware by timezones
    st.integers(1, 400),
)
def test_next_is_later_and_count_is_additive(
    expression: tuple[str, Fields], name: str, start: datetime, length: int
) -> None:
    text, fields = expression
    if not _possible(fields):
        return
    s = cron(text, name)
    found = next_after(s, start)
    assert found is not None
    assert found > start
    assert isinstance(s, Cron)
    walker = walker_of(s)
    low = (start - EPOCH) // timedelta(seconds=1)
    middle, high = low + length * 86_400 // 3, low + length * 86_400
    assert walker.count(low, high) == walker.count(low, middle) + walker.count(middle, high)


def test_offsets_are_zoneinfos() -> None:
    """Every zone, at instants over six centuries and at both sides of changes of offset."""
    second = timedelta(seconds=1)
    for n, name in enumerate(sorted(zone_names())):
        ours, theirs = zone(name), zone_info(name)
        at = datetime(1880, 1, 1, tzinfo=UTC) + n * timedelta(minutes=797)
        while at.year < 2500:
            seconds = (at - EPOCH) // second
            piece = ours.piece(seconds)
            for probe in {seconds, piece.start - 1, piece.start, piece.end - 1, piece.end}:
                if abs(probe) < 1 << 35:
                    wall = (EPOCH + probe * second).astimezone(theirs)
                    assert wall.utcoffset() == ours.offset(probe) * second, (name, probe)
            at += timedelta(days=1511)


def test_a_piece_ends_at_the_next_change_also_where_the_table_ends_without_one() -> None:
    """The last line of a zone's table may be a change of name alone; its rule goes on from it."""
    for name, text, end in (
        ("Antarctica/Troll", "2005-01-01", "2005-03-27T01:00"),
        ("Europe/London", "1995-12-31", "1996-03-31T01:00"),
        ("America/Nuuk", "2023-11-01", "2024-03-31T01:00"),
    ):
        instant = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
        piece = zone(name).piece(instant)
        assert piece.end == int(datetime.fromisoformat(end).replace(tzinfo=UTC).timestamp())
        assert piece.after > piece.offset
