"""What a sender says of a request or a message, in its headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

DELIVERY = "tickrail.delivery"
"""Where the handler finds its `Delivery`: in the ASGI scope, in the WSGI environment."""

_KEY = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,255}")
"""No comma: where a header is there twice, some servers join the values by one."""
_NAMES = (
    "idempotency-key",
    "fencing-token",
    "tickrail-attempt",
    "tickrail-job",
    "tickrail-scheduled-at",
)
_MAX_FENCE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a sender says of a request.

    Attributes:
        key: the launch; the same at every attempt.
        fence: the claim's number, higher at each later start; None where there is none.
        attempt: of the launch, counted from 1; None where the sender does not say.
        job: the name of the job, or "".
        scheduled_at: the slot, aware; None where the sender does not say.
        signed: whether a signature was looked at, and right.
    """

    key: str
    fence: int | None
    attempt: int | None = None
    job: str = ""
    scheduled_at: datetime | None = None
    signed: bool = False


def delivery_of(place: Mapping[str, Any]) -> Delivery | None:
    """The delivery that a handler serves; None for a request that is not concerned.

    Args:
        place: `request.scope` in Starlette and FastAPI, `request.environ` in Flask.
    """
    found = place.get(DELIVERY)
    return found if isinstance(found, Delivery) else None


def read_delivery(headers: Iterable[tuple[str, str | bytes]]) -> Delivery | None:
    """What a sender says of a request, or of a message from Kafka, in its headers.

    Args:
        headers: names in any case; values as text, or as bytes as a consumer of Kafka gets them.

    Returns:
        The delivery, `signed` being left for the caller to find out; None: there is no key.

    Raises:
        ValueError: names the header that cannot be right.
    """
    found = once(headers, _NAMES)
    key = found.get("idempotency-key", "").strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]  # as a structured header has it
    if not key:
        return None
    if not _KEY.fullmatch(key):
        right = "1 to 255 characters of ASCII without blanks and commas"
        raise ValueError(f"the header idempotency-key is not {right}")
    return Delivery(
        key,
        _whole(found, "fencing-token"),
        _whole(found, "tickrail-attempt"),
        found.get("tickrail-job", ""),
        _instant(found.get("tickrail-scheduled-at", "")),
    )


def once(headers: Iterable[tuple[str, str | bytes]], names: Iterable[str]) -> dict[str, str]:
    """The headers of these names.

    Raises:
        ValueError: one of them is there twice; which one counts, readers would disagree on.
    """
    wanted, found = frozenset(names), dict[str, str]()
    for name, value in headers:
        lower = name.lower()
        if lower in wanted:
            if lower in found:
                raise ValueError(f"the header {lower} is there twice")
            found[lower] = value if isinstance(value, str) else value.decode("latin-1")
    return found


def _whole(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_FENCE)):
        number = int(text)
        if 0 < number <= _MAX_FENCE:
            return number
    raise ValueError(f"the header {name} is not a whole number above 0")


def _instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return instant if instant.tzinfo is not None else None
