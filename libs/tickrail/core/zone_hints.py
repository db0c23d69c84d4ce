"""Which time zone a name that the database does not have probably means."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

_OFFSET = re.compile(
    r"(?:etc/)?(?:utc|gmt)?\s*(?P<sign>[-+\u2212])\s*(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?",
    re.IGNORECASE | re.ASCII,
)
_MOST_AHEAD: Final = 14
_MOST_BEHIND: Final = 12
_SHOWN: Final = 3
_LETTERS: Final = {
    "America/Los_Angeles": "PT PST PDT PACIFIC",
    "America/Denver": "MT MST MDT MOUNTAIN",
    "America/Chicago": "CT CST CDT CENTRAL",
    "America/New_York": "ET EST EDT EASTERN",
    "America/Halifax": "ADT",
    "America/Anchorage": "AKST AKDT",
    "Pacific/Honolulu": "HST",
    "America/Sao_Paulo": "BRT",
    "America/Argentina/Buenos_Aires": "ART",
    "Europe/London": "BST",
    "Europe/Dublin": "IST",
    "Europe/Lisbon": "WEST",
    "Europe/Berlin": "CEST MEZ MESZ",
    "Europe/Athens": "EEST",
    "Europe/Istanbul": "TRT",
    "Europe/Moscow": "MSK",
    "Africa/Johannesburg": "SAST",
    "Africa/Lagos": "WAT",
    "Africa/Nairobi": "EAT",
    "Asia/Dubai": "GST",
    "Asia/Jerusalem": "IST IDT",
    "Asia/Karachi": "PKT",
    "Asia/Kolkata": "IST",
    "Asia/Shanghai": "CST",
    "Asia/Hong_Kong": "HKT",
    "Asia/Singapore": "SGT",
    "Asia/Tokyo": "JST",
    "Asia/Seoul": "KST",
    "Australia/Perth": "AWST",
    "Australia/Adelaide": "ACST ACDT",
    "Australia/Sydney": "AEST AEDT",
    "Pacific/Auckland": "NZST NZDT",
    "UTC": "Z",
}
"""Letters that clocks show: some stand for several zones, and none says which rules are meant."""


def nearest_zones(name: str, names: frozenset[str]) -> tuple[str, ...]:
    """What may have been meant, the likeliest first, to be told to a person.

    Args:
        name: what was written.
        names: the names of the time zone database.
    """
    wanted = name.strip().casefold().replace(" ", "_")
    found = _OFFSET.fullmatch(name.strip())
    if found is not None:
        return _of_offset(found)
    letters = [zone for zone, known in _LETTERS.items() if wanted.upper() in known.split()]
    if letters:
        return tuple(letters[:_SHOWN])
    same = [n for n in sorted(names) if wanted and wanted in (n.casefold(), _city(n))]
    if same:
        return tuple(same[:_SHOWN])
    by_fold = {n.casefold(): n for n in names} | {_city(n): n for n in sorted(names)}
    near = get_close_matches(wanted, by_fold, n=_SHOWN)
    return tuple(dict.fromkeys(by_fold[m] for m in near))


def _city(name: str) -> str:
    return name.rpartition("/")[2].casefold()


def _of_offset(found: re.Match[str]) -> tuple[str, ...]:
    """The zone of an offset: the database names whole hours alone, with the sign reversed."""
    hours, ahead = int(found["hours"]), found["sign"] == "+"
    if int(found["minutes"] or 0) or hours > (_MOST_AHEAD if ahead else _MOST_BEHIND):
        return ()
    if not hours:
        return ("UTC",)
    way = "ahead of" if ahead else "behind"
    told = f"{hours} hour{'s' * (hours > 1)} {way} UTC: the sign of this name is reversed"
    return (f"Etc/GMT{'-' if ahead else '+'}{hours} ({told})",)
