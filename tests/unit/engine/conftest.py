from __future__ import annotations

import pytest
from tests.support.stepped_owner import Process, make_process


@pytest.fixture
def process() -> Process:
    return make_process()
