"""A database of the test's own, as the store's tests use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.database import Database
from tests.support.store_bed import PostgresBed

from tickrail.store.fence import PostgresFenceStore


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
