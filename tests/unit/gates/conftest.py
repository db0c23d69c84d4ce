"""A copy of the tree in which a test may plant a breach."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from tests.support.tree import ROOT, Tree


@pytest.fixture(scope="package")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    root = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", root)
    for part in ("libs", "services"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    return Tree(root)


@pytest.fixture
def tree(copied: Tree) -> Iterator[Tree]:
    yield copied
    copied.clear()
