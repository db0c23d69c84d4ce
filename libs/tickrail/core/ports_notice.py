"""Notices: what a tenant is told outside, kept in the transaction of what it tells of.

A notice is written beside the change (`store/notices.py`, by the SQL function `add_notice`), one
row for each channel. Workers deliver them, at least once, under an id that
stays. `about` bounds a storm: at most `MOST_A_MINUTE` notices of a tenant about one thing go to a
channel in a minute; those beyond are counted in one more, which goes out when the minute is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tickrail.core.ids import TenantId
from tickrail.core.on_failures import Channel, ChannelKind

MOST_A_MINUTE = 5
"""Notices of one tenant about one thing that go to a channel in a minute; one more sums up."""
GIVE_UP_AFTER = timedelta(hours=24)
"""After so long a notice that cannot be delivered is given up."""


class NoticeKind(StrEnum):
    """What a notice tells; part of the `type` that a receiver sees (`tickrail.launch.dead`)."""

    LAUNCH_DEAD = "launch.dead"
    LAUNCH_ABANDONED = "launch.abandoned"
    JOB_PAUSED = "job.paused"
    JOB_SILENT = "job.silent"
    QUOTA_REACHED = "quota.reached"
    SUPPRESSED = "notices.suppressed"


@dataclass(frozen=True, slots=True)
class NewNotice:
    """A notice to be kept.

    Attributes:
        tenant: whose it is.
        kind: what it tells.
        about: what it is about, as the audit log names subjects: `job:<id>`, `quota:jobs`.
        text: one line for people; no secret in it.
        data: JSON members that say more, for programs.
        channels: where it goes, once each. A webhook's secret and a topic are looked at when it is
            sent; whoever takes the names from a user checks them there, too.
    """

    tenant: TenantId
    kind: NoticeKind
    about: str
    text: str
    data: Mapping[str, Any]
    channels: Sequence[Channel]


class OwedNotice(NamedTuple):
    """A notice to be delivered. `attempts` counts this one; `suppressed` those it stands for."""

    id: UUID
    tenant: TenantId
    kind: str
    about: str
    channel: Channel
    text: str
    data: Mapping[str, Any]
    suppressed: int
    created_at: datetime
    attempts: int


class NoticeEnd(NamedTuple):
    """What became of a delivery.

    `retry` None: no further try. `attempts` names the delivery that ended: one whose hold ran out
    and that another worker took again changes nothing.
    """

    id: UUID
    attempts: int
    delivered: bool
    retry: timedelta | None = None
    error: str = ""


class TenantRoom(NamedTuple):
    """How many deliveries of one tenant a process may have out, and how many it has."""

    most: int
    out: Mapping[TenantId, int]


ANY_ROOM = TenantRoom(2**31 - 1, MappingProxyType({}))
"""As much as there is, and nothing is out."""


class NoticeStore(Protocol):
    """Notices of all tenants, for those who deliver them. Each method is one transaction."""

    def take(
        self,
        kinds: Collection[ChannelKind],
        limit: int,
        hold: timedelta,
        room: TenantRoom = ANY_ROOM,
    ) -> Sequence[OwedNotice]:
        """Take up to `limit` that are due, of channels of these kinds; tenants go in turns.

        Nobody else takes them until `hold` has passed. Those of tenants that are not active wait.
        No tenant gets more than the room that it has; who has less out already goes first.
        """
        ...

    def settle(self, ends: Sequence[NoticeEnd]) -> int:
        """Record ends; how many deliveries were still this caller's."""
        ...
