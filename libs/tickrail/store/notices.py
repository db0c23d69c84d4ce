"""The port `NoticeStore` on PostgreSQL, and how notices are kept beside what they tell of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from tickrail.core.execution import one_line
from tickrail.core.on_failures import ChannelKind, parse_channel
from tickrail.core.ports_notice import (
    ANY_ROOM,
    MOST_A_MINUTE,
    NewNotice,
    NoticeEnd,
    OwedNotice,
    TenantRoom,
)
from tickrail.store.queries import json_text, load
from tickrail.store.session import Cursor, DatabaseSettings, Session

_SQL = load("notices")
_TIMEOUT = 10.0


def add_notices(cursor: Cursor, notices: Sequence[NewNotice]) -> None:
    """Keep notices in a transaction of the engine; the last of what it does.

    A lock on what they are about is held until the commit.
    """
    rows = _rows(notices)
    if rows:
        names = ("tenant", "kind", "about", "channel", "said", "data")
        columns = {name: [row[name] for row in rows] for name in names}
        cursor.execute(_SQL["add"], {**columns, "most": MOST_A_MINUTE})


def _rows(notices: Iterable[NewNotice]) -> list[dict[str, Any]]:
    """A row for each channel, in the order in which what they are about is locked."""
    return [
        {
            "tenant": n.tenant,
            "kind": n.kind.value,
            "about": n.about,
            "channel": str(channel),
            "said": one_line(n.text),
            "data": json_text(n.data),
        }
        for n in sorted(notices, key=lambda n: (n.tenant, n.about))
        for channel in n.channels
    ]


class PostgresNoticeStore:
    """Notices of all tenants, for those who deliver them. Safe to use from several threads."""

    def __init__(self, settings: DatabaseSettings) -> None:
        """A store that connects at first use.

        Args:
            settings: the engine role's.
        """
        self._session = Session(
            replace(settings, statement_timeout=_TIMEOUT, idle_timeout=_TIMEOUT)
        )

    def take(
        self,
        kinds: Collection[ChannelKind],
        limit: int,
        hold: timedelta,
        room: TenantRoom = ANY_ROOM,
    ) -> Sequence[OwedNotice]:
        """Take up to `limit` that are due, of channels of these kinds; tenants go in turns."""
        keys = {
            "kinds": [k.value for k in kinds],
            "limit": limit,
            "hold": hold,
            "most": room.most,
            "tenants": list(room.out),
            "out": list(room.out.values()),
        }
        with self._session.transaction() as cursor:
            rows = cursor.execute(_SQL["take"], keys).fetchall()
        found: list[OwedNotice] = []
        for row in cast("Any", rows):
            channel = parse_channel(row[4])
            if channel is not None:
                owed = OwedNotice(*row)
                found.append(owed._replace(channel=channel))
        return found

    def settle(self, ends: Sequence[NoticeEnd]) -> int:
        """Record ends; how many deliveries were still this caller's."""
        if not ends:
            return 0
        with self._session.transaction() as cursor:
            cursor.execute(
                _SQL["settle"],
                {
                    "id": [e.id for e in ends],
                    "attempts": [e.attempts for e in ends],
                    "state": [_state(e) for e in ends],
                    "retry": [0.0 if e.retry is None else e.retry.total_seconds() for e in ends],
                    "error": [one_line(e.error) for e in ends],
                },
            )
            return cursor.rowcount

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()


def _state(end: NoticeEnd) -> str:
    if end.delivered:
        return "delivered"
    return "given_up" if end.retry is None else "pending"
