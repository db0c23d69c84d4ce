from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.clock import FakeClock

from tickrail.local.errors import LocalServersError
from tickrail.local.lockfile import FolderLock, holder_of


def test_a_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    first = FolderLock(tmp_path, FakeClock())
    first.acquire()
    with pytest.raises(
        LocalServersError,
        match=rf"in use by process {os.getpid()} \(`.+`\) since 2026-03-02 10:00:00 UTC",
    ):
        FolderLock(tmp_path, FakeClock()).acquire()
    first.release()


def test_a_released_folder_can_be_held_again(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path, FakeClock()), FolderLock(tmp_path, FakeClock())
    first.acquire()
    first.release()
    assert holder_of(tmp_path) is None
    second.acquire()
    assert holder_of(tmp_path) is not None
    second.release()


def test_the_note_of_a_killed_holder_does_not_count(tmp_path: Path) -> None:
    note = {"pid": 2**22 - 1, "created": 1.0, "command": "tickrail up", "since": "2026-01-01"}
    (tmp_path / "lock").write_text(json.dumps(note))
    assert holder_of(tmp_path) is None
    lock = FolderLock(tmp_path, FakeClock())
    assert lock.acquire().pid == os.getpid()
    lock.release()


def test_release_without_a_hold_does_nothing(tmp_path: Path) -> None:
    FolderLock(tmp_path, FakeClock()).release()
    assert not (tmp_path / "lock").exists()
