from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.api import Caller, World, api_world
from tests.support.database import Database


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with api_world(database) as made:
        yield made


@pytest.fixture
def acme(world: World) -> Caller:
    return world.acme


@pytest.fixture
def beta(world: World) -> Caller:
    return world.beta
