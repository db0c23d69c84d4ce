"""A stack that the tests of this folder may kill, and a data folder that root's servers reach."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tickrail.local.stack import LocalStack


@pytest.fixture(scope="module")
def own_stack() -> Iterator[LocalStack]:
    """Servers that only this module uses."""
    folder = Path(tempfile.mkdtemp(prefix="tickrail-test-"))
    folder.chmod(0o755)
    stack = LocalStack(folder, fast=True, usual_ports=False)
    stack.start()
    yield stack
    stack.destroy()


@pytest.fixture
def data_folder() -> Iterator[Path]:
    """An empty data folder, open to the system user of PostgreSQL."""
    folder = Path(tempfile.mkdtemp(prefix="tickrail-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
