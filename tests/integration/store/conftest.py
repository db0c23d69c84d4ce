"""A database of the test's own, as the store's tests use it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.support.database import Database
from tests.support.store_bed import PostgresBed

from tickrail.engine.upkeep import Upkeep
from tickrail.store.fence import PostgresFenceStore
from tickrail.store.upkeep import PostgresUpkeep


@pytest.fixture
def bed(database: Database) -> Iterator[PostgresBed]:
    made = PostgresBed(database)
    yield made
    made.close()


@pytest.fixture
def fence(bed: PostgresBed) -> Iterator[PostgresFenceStore]:
    store = PostgresFenceStore(bed.settings)
    yield store
    store.close()


@pytest.fixture
def upkeep(bed: PostgresBed) -> Iterator[PostgresUpkeep]:
    records = PostgresUpkeep(bed.settings)
    yield records
    records.close()


@pytest.fixture
def upkeep_loop(upkeep: PostgresUpkeep) -> Upkeep:
    return Upkeep(upkeep, timedelta(days=400), timedelta(days=30))
