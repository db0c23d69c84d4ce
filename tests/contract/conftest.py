"""The launch stores that the contract is run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.store_bed import Bed, MemoryBed, PostgresBed


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    if request.param == "memory":
        yield MemoryBed()
        return
    postgres = PostgresBed(request.getfixturevalue("database"))
    yield postgres
    postgres.close()
