"""A database of the test's own, and the whole path on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.database import Database
from tests.support.path import Path
from tests.support.servers import Servers
from tests.support.store_bed import PostgresBed


@pytest.fixture
def bed(database: Database) -> Iterator[PostgresBed]:
    made = PostgresBed(database)
    yield made
    made.close()


@pytest.fixture
def path(bed: PostgresBed, stack: Servers, topic_prefix: str) -> Iterator[Path]:
    made = Path(bed, stack.kafka_bootstrap, topic_prefix.rstrip("."))
    yield made
    made.stop()
