"""Where a webhook goes, and what its answer means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple

from tickrail.core.execution import OK, Outcome, bounded_text
from tickrail.core.secrets import Masker
from tickrail.core.target_webhook import Webhook, split_url
from tickrail.executors.egress_policy import port_of

RawHeaders = list[tuple[bytes, bytes]]

NOT_RETRYABLE = frozenset({410, 413, 414, 431, 501, 505})
"""Statuses by which a receiver says that the same call can never succeed. Others are tried again,
most of 4xx too: a receiver that answers 404 or 422 may only be in the middle of its deployment."""

_REDIRECTS = range(300, 400)
_MAX_WAIT = 10 * 365 * 86_400.0


class Endpoint(NamedTuple):
    """A URL taken apart."""

    scheme: str
    host: str
    port: int
    path: bytes
    authority: bytes

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what may share connections, and credentials."""
        return self[:3]


@lru_cache(maxsize=4096)
def endpoint(url: str) -> Endpoint:
    """Take a URL apart.

    Raises:
        ValueError: as `split_url`.
    """
    parts = split_url(url)
    host = parts.hostname or ""
    authority = f"[{host}]" if ":" in host else host
    if parts.port is not None and parts.port != port_of(parts.scheme, None):
        authority += f":{parts.port}"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(
        parts.scheme, host, port_of(parts.scheme, parts.port), path.encode(), authority.encode()
    )


def instant_text(instant: datetime) -> str:
    """RFC 3339 in UTC with Z."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def answer_text(body: bytes, *, cut: bool, masker: Masker) -> str:
    """What is kept of an answer's body: the start of it, without the values of secrets.

    Args:
        body: as much of it as was read: with secrets, somewhat more than is kept.
        cut: whether there is more.
        masker: knows the secrets that were sent.
    """
    if not masker:
        return bounded_text(body)
    text = masker.mask(body.decode("utf-8", "replace"), cut=cut)
    return bounded_text(text.encode())


def outcome_of(
    target: Webhook, status: int, headers: Mapping[bytes, bytes], text: str, now: datetime
) -> Outcome:
    """What an answer means.

    Args:
        target: whose success rule decides.
        status: of the answer.
        headers: by their names in lower case.
        text: what is kept of its body.
        now: the present, for `Retry-After` dates.
    """
    if target.succeeds(status):
        return Outcome(ok=True, outcome=OK, code=status, message=f"HTTP {status}", body=text)
    message = f"HTTP {status}"
    if status in _REDIRECTS and not target.redirects:
        message += ", and redirects are not followed"
    return Outcome(
        ok=False,
        outcome=f"http_{status}",
        certain=True,
        retryable=status not in NOT_RETRYABLE,
        code=status,
        message=message,
        body=text,
        retry_after=retry_after(headers, now),
    )


def retry_after(headers: Mapping[bytes, bytes], now: datetime) -> float | None:
    """Seconds that the answer asks to wait (`Retry-After`: seconds or a date); None if it does not.

    What cannot be read is ignored; a date that has passed is 0.
    """
    raw = headers.get(b"retry-after")
    if raw is None:
        return None
    text = raw.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), _MAX_WAIT)
    try:
        instant = parsedate_to_datetime(text)
    except ValueError:
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return min(max(0.0, (instant - now).total_seconds()), _MAX_WAIT)
