"""Values of secrets taken out of an output that comes in pieces."""

from __future__ import annotations

import re

from tickrail.core.secrets import MASK, Masker

_LOOK = 16


class StreamMasker:
    """Replaces values of secrets in a stream of bytes, however it is cut into pieces.

    What may be the beginning of a value is held back until it is seen whether it is one.
    """

    def __init__(self, masker: Masker) -> None:
        """Nothing has come yet.

        Args:
            masker: knows the texts that must not be shown.
        """
        self._values = sorted((t.encode() for t in masker.texts), key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._values)) or rb"(?!)")
        self._first = frozenset(v[0] for v in self._values)
        self._longest = len(self._values[0]) if self._values else 0
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown now."""
        if not self._values:
            return data
        rest = self._held + data
        shown: list[bytes] = []
        at, begun = 0, self._begun(rest, 0)
        while True:
            found = self._any.search(rest, at)
            # Where a value begins that a longer one begins with, the end is waited for.
            if found is None or found.start() >= begun:
                break
            shown += (rest[at : found.start()], MASK.encode())
            at = found.end()
            if at > begun:  # else the same bytes may begin a value as before
                begun = self._begun(rest, at)
        shown.append(rest[at:begun])
        self._held = rest[begun:]
        return b"".join(shown)

    def end(self) -> bytes:
        """What was held back: nothing more comes."""
        held, self._held = self._held, b""
        return self._any.sub(MASK.encode(), held)

    def _begun(self, data: bytes, at: int) -> int:
        """Where the last bytes begin that may be the beginning of a value; the end if none."""
        for i in range(max(at, len(data) - self._longest + 1), len(data)):
            if data[i] not in self._first:
                continue
            near = data[i : i + _LOOK]
            likely = [v for v in self._values if len(v) > len(data) - i and v.startswith(near)]
            if likely:
                tail = data[i:]
                if any(v.startswith(tail) for v in likely):
                    return i
        return len(data)
