"""The project's files, and a copy of the tree in which a test may plant a breach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


class Tree:
    """A copy of the project's configuration and sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._planted: list[Path] = []

    def plant(self, file: str, text: str) -> None:
        """Write a file that was not there."""
        path = self.root / file
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as f:
            f.write(text)
        self._planted.extend(missing)

    def run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run one of the gates' programs over the copy."""
        paths = [str(self.root / "libs"), str(self.root / "services")]
        return subprocess.run(
            [str(BIN / program), *args],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def clear(self) -> None:
        """Remove what was planted."""
        for path in self._planted:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._planted.clear()


def project_files(*suffixes: str) -> list[Path]:
    """What git holds or would take: the files with one of these suffixes, or all."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = [ROOT / name for name in done.stdout.split("\0") if name]
    return sorted(p for p in found if p.is_file() and (not suffixes or p.suffix in suffixes))
