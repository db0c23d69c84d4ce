"""The small world that ownership's tests step by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.ownership_world import Process, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make(world: World) -> Callable[..., Process]:
    return world.process
