"""What `tickrail system raise-generation` does, straight on the servers."""

from __future__ import annotations

from contextlib import closing

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings
from tickrail.engine.generation import History, look
from tickrail.runtime.settings import Settings
from tickrail.store.fence import PostgresFenceStore, raise_generation
from tickrail.store.session import DatabaseSettings


def compared(settings: Settings) -> History:
    """What PostgreSQL and etcd know of epochs.

    Raises:
        UnavailableError: PostgreSQL does not answer.
        SetupError: it holds no installation, or etcd refuses the access.
    """
    database = DatabaseSettings(settings.database_url)
    with (
        closing(PostgresFenceStore(database)) as store,
        closing(EtcdCoordinator(EtcdSettings(**settings.group("etcd")))) as coordinator,
    ):
        return look(store, coordinator)


def raise_it(settings: Settings) -> int:
    """Begin a new generation; its number.

    Raises:
        SetupError: there is no installation, or the last generation was reached.
    """
    return raise_generation(settings.database_url)
