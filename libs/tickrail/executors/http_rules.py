"""What a webhook sends, and what its answer means. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple

import orjson

from tickrail.core.execution import OK, Outcome, Run, bounded_text
from tickrail.core.target_webhook import Webhook, split_url
from tickrail.executors.egress_policy import port_of

RawHeaders = list[tuple[bytes, bytes]]

NOT_RETRYABLE = frozenset({410, 413, 414, 431, 501, 505})
"""Statuses by which a receiver says that the same call can never succeed. Others are tried again,
most of 4xx too: a receiver that answers 404 or 422 may only be in the middle of its deployment."""

_NO_BODY = frozenset({"GET", "HEAD"})
_REDIRECTS = range(300, 400)
_MAX_WAIT = 10 * 365 * 86_400.0


class Endpoint(NamedTuple):
    """A URL taken apart."""

    scheme: str
    host: str
    port: int
    path: bytes
    authority: bytes


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


def request_body(run: Run, target: Webhook) -> bytes:
    """The payload as JSON; nothing for a job without payload, and for GET and HEAD."""
    if run.payload is None or target.method in _NO_BODY:
        return b""
    try:
        return orjson.dumps(run.payload)
    except TypeError:  # a number beyond 64 bits
        return json.dumps(run.payload, ensure_ascii=False, separators=(",", ":")).encode()


def request_headers(
    run: Run, target: Webhook, to: Endpoint, body: bytes, user_agent: str
) -> RawHeaders:
    """The target's own headers, then those of Tickrail, which nothing can replace."""
    own = {name.lower() for name, _ in target.headers}
    headers: RawHeaders = [(b"Host", to.authority)]
    defaults = [("User-Agent", user_agent), ("Accept", "*/*"), ("Accept-Encoding", "identity")]
    if body:
        defaults.append(("Content-Type", "application/json"))
    headers += [(n.encode(), v.encode()) for n, v in defaults if n.lower() not in own]
    # HTTP drops the space round a value; h11 refuses it.
    headers += [
        (n.encode(), v.strip(" \t").encode("latin-1"))
        for n, v in target.headers
        if isinstance(v, str)
    ]
    headers += [
        (b"Idempotency-Key", str(run.launch_id).encode()),
        (b"Fencing-Token", b"%d" % run.claim),
        (b"Tickrail-Job", run.job_name.encode()),
        (b"Tickrail-Scheduled-At", instant_text(run.scheduled_at).encode()),
        (b"Tickrail-Attempt", b"%d" % run.attempt),
    ]
    if run.trace:
        headers.append((b"traceparent", run.trace.encode()))
    if body or target.method not in _NO_BODY:
        headers.append((b"Content-Length", b"%d" % len(body)))
    return headers


def instant_text(instant: datetime) -> str:
    """RFC 3339 in UTC with Z."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def outcome_of(
    target: Webhook,
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    now: datetime,
) -> Outcome:
    """What an answer means."""
    text = bounded_text(body)
    if target.succeeds(status):
        return Outcome(ok=True, outcome=OK, code=status, message=f"HTTP {status}", body=text)
    found = {name.lower(): value for name, value in headers}
    message = f"HTTP {status}"
    if status in _REDIRECTS:
        message += ", and redirects are not followed"
    return Outcome(
        ok=False,
        outcome=f"http_{status}",
        certain=True,
        retryable=status not in NOT_RETRYABLE,
        code=status,
        message=message,
        body=text,
        retry_after=retry_after(found, now),
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
