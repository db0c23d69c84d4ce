"""Wake-ups: a session that listens. A hint only; every loop also looks by itself."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tickrail.store.errors import mapped
from tickrail.store.session import Connection, DatabaseSettings, connect
from tickrail.store.worker import WAKE_CHANNEL


class WakeListener:
    """Calls `wake` when somebody notified. Owned by one thread."""

    def __init__(self, settings: DatabaseSettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._wake = wake
        self._conn: Connection | None = None

    def run_once(self, timeout: float = 1.0) -> float:
        """Wait up to `timeout` seconds for a notice; 0, since it is to be called again at once.

        Raises:
            UnavailableError: the connection was lost; the next call makes a new one.
        """
        try:
            if self._conn is None:
                self._conn = connect(self._settings, autocommit=True)
                self._conn.execute(f"listen {WAKE_CHANNEL}")
                self._wake()  # what was said while nobody listened
            if list(self._conn.notifies(timeout=timeout, stop_after=1)):
                self._wake()
        except psycopg.Error as e:
            self.close()
            raise mapped(e) from e
        return 0.0

    def close(self) -> None:
        """Give the connection back."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()
