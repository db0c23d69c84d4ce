"""Places for large bodies: so many in a process, and a part of them for each tenant."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tickrail.core.errors import RateLimitedError, UnavailableError

MOST_LARGE: Final = 32
"""Bodies larger than `bodies.MAX_BODY` that a process holds at a time."""
EACH: Final = 4
"""One tenant, or one operator, has at most this part of them: a quarter."""


class Places:
    """Who holds how many. Used on the event loop alone."""

    def __init__(self, most: int) -> None:
        """All are free.

        Args:
            most: how many there are.
        """
        self._most = most
        self._each = max(1, most // EACH)
        self._held: Counter[str] = Counter()

    def take(self, owner: str) -> None:
        """Take one; `give_back` is owed.

        Raises:
            RateLimitedError: the owner has its part already.
            UnavailableError: none is free.
        """
        if self._held[owner] >= self._each:
            raise RateLimitedError(
                f"You send {self._each} large bodies already; wait until one is answered."
            )
        if self._held.total() >= self._most:
            raise UnavailableError("Too many large bodies are on their way; try again.")
        self._held[owner] += 1

    def give_back(self, owner: str | None) -> None:
        """Give one back; None: none was taken."""
        if owner is not None:
            self._held[owner] -= 1
            self._held += Counter()  # without those that hold none any more
