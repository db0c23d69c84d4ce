"""Tokens for requests: one bucket for all processes, out of which each takes slices.

Pure. A process that asked for each request would put a statement before every one. So it takes some
tokens at once, an eighth of what the bucket holds, uses them within a second, and brings back what
is left when it takes the next ones. The emptier the bucket, the smaller the slices: the last tokens
are taken one by one, or, where many come in a second, those of a twentieth of a second together.

What this costs in exactness: in any stretch of time no more requests pass than the burst and what
came in meanwhile, and one slice for each process, an eighth of the burst at most. And while a
process holds a slice that it does not use, for a second at most, others may be refused for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from tickrail.core.quotas import RequestRate

SLICE_SECONDS: Final = 1.0
"""For so long a process may use what it took."""
_SHARE: Final = 8
_LEAST_SECONDS: Final = 0.05


class Bucket(NamedTuple):
    """Tokens as stored: so many at that instant."""

    tokens: float
    filled_at: datetime


class Slice(NamedTuple):
    """What a process gets.

    Attributes:
        tokens: requests that it may let pass; 0: none.
        left: what the bucket holds then.
        wait: seconds until it is worth asking again, where there is none.
    """

    tokens: int
    left: float
    wait: float


def take_slice(
    bucket: Bucket, rate: RequestRate, now: datetime, returned: int
) -> tuple[Bucket, Slice]:
    """Take a slice out of a bucket; the bucket as it is then.

    Args:
        bucket: as stored.
        rate: how it fills, and what it holds at most.
        now: the database's clock; before `filled_at`, somebody was quicker at the same moment.
        returned: tokens of the process's last slice that it did not use.
    """
    seconds = max(0.0, (now - bucket.filled_at).total_seconds())
    tokens = min(float(rate.burst), bucket.tokens + seconds * rate.per_second + returned)
    least = min(max(1, int(rate.per_second * _LEAST_SECONDS)), rate.burst)
    granted = min(max(least, int(tokens) // _SHARE), int(tokens + 1e-9))
    after = Bucket(tokens - granted, max(now, bucket.filled_at))
    wait = 0.0 if granted else (least - tokens) / rate.per_second
    return after, Slice(granted, after.tokens, wait)
