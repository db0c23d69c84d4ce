"""Calendars as the owner's planner reads them: each text once for a version."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, cast

from tickrail.core.ids import TenantId
from tickrail.core.ports import Calendars, CalendarText, DueJob, NamesCalendars
from tickrail.store.queries import load
from tickrail.store.session import Cursor

_SQL = load("owner")
_Key = tuple[TenantId, str]


class CalendarReader:
    """Reads what a batch of jobs needs, within the transaction that plans them.

    The jobs' rows are locked before, and a change of a calendar locks the jobs that use it: what
    is read here is what the calendar was, or is, for all of the batch's decisions.
    """

    SIZE: Final = 2_000

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: OrderedDict[_Key, CalendarText] = OrderedDict()

    def read(self, cursor: Cursor, jobs: Sequence[DueJob], planner: NamesCalendars) -> Calendars:
        """The calendars that these jobs name."""
        wanted = {(job.tenant, name) for job in jobs for name in planner.calendars(job)}
        if not wanted:
            return {}
        rows = cursor.execute(_SQL["calendar_versions"], _keys(wanted)).fetchall()
        versions = {(r[0], r[1]): (r[2], r[3]) for r in cast("Any", rows)}
        news = [
            key
            for key, version in versions.items()
            if key not in self._known or _version(self._known[key]) != version
        ]
        if news:
            texts = cursor.execute(_SQL["calendar_texts"], _keys(news)).fetchall()
            for tenant, name, version, text, made in cast("Any", texts):
                self._known[tenant, name] = CalendarText(version, text, made)
        found = {key: self._known[key] for key in versions}
        for key in found:
            self._known.move_to_end(key)
        while len(self._known) > max(self.SIZE, len(found)):
            self._known.popitem(last=False)
        return found


def _version(text: CalendarText) -> tuple[int, int]:
    return text.version, text.made


def _keys(wanted: Sequence[_Key] | set[_Key]) -> dict[str, object]:
    pairs = sorted(wanted)
    return {"tenant_id": [t for t, _ in pairs], "name": [n for _, n in pairs]}
