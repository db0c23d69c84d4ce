"""The trust window: until when the holder of a lease may act.

The server counts the lease from when it handled the renewal, which is after the renewal was sent.
So the holder counts from the sending, and stops a margin earlier. It never counts from the answer:
an answer may have been on its way for longer than the lease has left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TrustWindow:
    """A value; times are readings of `Clock.monotonic()` in seconds.

    Attributes:
        ttl: the lease's time to live in seconds.
        margin: how much earlier than the lease's end the holder stops, in seconds.
        sent_at: when the last renewal that was answered (or the grant) was sent; None before.
    """

    ttl: float
    margin: float
    sent_at: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.margin < self.ttl:
            raise ValueError(f"margin {self.margin} must be at least 0 and below ttl {self.ttl}")

    @property
    def deadline(self) -> float:
        """From this reading on the holder may not act; minus infinity before the first grant."""
        return float("-inf") if self.sent_at is None else self.sent_at + self.ttl - self.margin

    def valid(self, now: float) -> bool:
        """Whether the holder may act at this reading."""
        return now < self.deadline

    def remaining(self, now: float) -> float:
        """Seconds left, 0 when the window is over."""
        return max(0.0, self.deadline - now)

    def renewed(self, sent_at: float) -> TrustWindow:
        """The window after a renewal sent at this reading was answered.

        Answers that come out of order never shorten it, and a window that was over when the
        renewal was sent stays over: the holder enters again under a new lease.
        """
        if self.sent_at is not None and not self.sent_at <= sent_at < self.deadline:
            return self
        return replace(self, sent_at=sent_at)
