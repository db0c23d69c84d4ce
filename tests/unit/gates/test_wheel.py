"""The wheel: the same bytes from the same sources, and what must be in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.tree import ROOT

PARTS = ("libs", "services")
FILES = ("pyproject.toml", "README.md", "LICENSE")


def build(folder: Path) -> Path:
    """The wheel of a copy of the sources, whose files are of now."""
    for part in PARTS:
        shutil.copytree(
            ROOT / part,
            folder / part,
            copy_function=shutil.copyfile,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
    for name in FILES:
        shutil.copyfile(ROOT / name, folder / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two, each from a copy of its own."""
    return [build(tmp_path_factory.mktemp("sources")) for _ in range(2)]


def test_the_same_sources_give_the_same_bytes(wheels: list[Path]) -> None:
    first, second = wheels
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_it_holds_every_file_of_the_packages_and_nothing_else(wheels: list[Path]) -> None:
    names = set(zipfile.ZipFile(wheels[0]).namelist())
    wanted = {
        path.relative_to(ROOT / part).as_posix()
        for part in PARTS
        for path in (ROOT / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    held = {name for name in names if ".dist-info/" not in name}
    assert held == wanted
    assert {name.rpartition("/")[2] for name in names - held} >= {"METADATA", "LICENSE"}
