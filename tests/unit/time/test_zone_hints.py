"""What is said of a zone that does not exist names one that does, and tells what may surprise."""

from __future__ import annotations

import pytest

from tickrail.core.zones import UnknownZoneError, zone, zone_names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("GMT+2", ("Etc/GMT-2 (2 hours ahead of UTC: the sign of this name is reversed)",)),
        ("UTC+2", ("Etc/GMT-2 (2 hours ahead of UTC: the sign of this name is reversed)",)),
        ("utc +02:00", ("Etc/GMT-2 (2 hours ahead of UTC: the sign of this name is reversed)",)),
        ("+0100", ("Etc/GMT-1 (1 hour ahead of UTC: the sign of this name is reversed)",)),
        ("UTC-5", ("Etc/GMT+5 (5 hours behind UTC: the sign of this name is reversed)",)),
        ("UTC+0", ("UTC",)),
        ("UTC+5:30", ()),
        ("GMT+15", ()),
        ("GMT-13", ()),
        ("PST", ("America/Los_Angeles",)),
        ("edt", ("America/New_York",)),
        ("est", ("America/New_York",)),
        ("IST", ("Europe/Dublin", "Asia/Jerusalem", "Asia/Kolkata")),
        ("CST", ("America/Chicago", "Asia/Shanghai")),
        ("CEST", ("Europe/Berlin",)),
        ("Z", ("UTC",)),
        ("berlin", ("Europe/Berlin",)),
        ("europe/berlin", ("Europe/Berlin",)),
        ("new york", ("America/New_York",)),
        ("Europe/Berln", ("Europe/Berlin",)),
        ("Qqqqq", ()),
        ("", ()),
    ],
)
def test_the_zone_that_may_be_meant(name: str, nearest: tuple[str, ...]) -> None:
    with pytest.raises(UnknownZoneError) as unknown:
        zone(name)
    found = unknown.value.nearest
    assert found[: len(nearest)] == nearest
    assert bool(found) is bool(nearest)
    assert {one.partition(" ")[0] for one in found} <= zone_names()
