"""A database of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.database import Database
from tests.support.store_bed import PostgresBed


@pytest.fixture
def bed(database: Database) -> Iterator[PostgresBed]:
    made = PostgresBed(database)
    yield made
    made.close()
