"""Things that go on beside each other for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tests.support.until import pause


def at_once(bodies: Mapping[str, Callable[[], object]], seconds: float) -> None:
    """Turn each body over and over in a thread of its own; none fails, and each had a turn."""
    rounds = dict.fromkeys(bodies, 0)
    failed: list[tuple[str, Exception]] = []
    over = threading.Event()

    def run(name: str) -> None:
        while not over.is_set():
            try:
                bodies[name]()
                rounds[name] += 1
            except Exception as e:  # noqa: BLE001 - shown by the test
                failed.append((name, e))

    threads = [threading.Thread(target=run, args=(name,)) for name in bodies]
    for one in threads:
        one.start()
    pause(seconds)
    over.set()
    for one in threads:
        one.join(60)
    assert failed == []
    assert all(rounds.values()), rounds
