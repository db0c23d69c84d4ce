"""What a tenant's channels are told of its quotas, and which channels those are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tickrail.core.documents import Reader
from tickrail.core.ids import TenantId
from tickrail.core.on_failures import Channel, read_channels
from tickrail.core.ports_notice import NewNotice, NoticeKind
from tickrail.core.quotas import Reached, reached_document


def reached_notice(tenant: TenantId, what: Reached, channels: Sequence[Channel]) -> NewNotice:
    """What the tenant's channels are told of it."""
    return NewNotice(
        tenant,
        NoticeKind.QUOTA_REACHED,
        f"quota:{what.quota}",
        f"{what.percent} % of the quota {what.quota} are used: {what.used} of {what.limit}",
        {"quota": reached_document(what)},
        channels,
    )


def read_notify(document: object) -> tuple[Channel, ...]:
    """The channels that are told of levels, from `{"notify": ["webhook:ops"]}`.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader(document)
    if not reader.has("notify") and not reader.problems:
        reader.problem("notify", "is missing", "a list of channels, [] for none")
    found = read_channels(reader, "notify")
    reader.finish("list of channels")
    return found
