from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tickrail.local import jars
from tickrail.local.errors import LocalServersError
from tickrail.local.jars import Jar, classpath, parse
from tickrail.local.progress import SilentProgress

CONTENT = b"a jar"
JAR = Jar("org.example", "thing", "1.2", hashlib.sha256(CONTENT).hexdigest())
OTHER = Jar("org.example", "other", "3", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars' folder of a cache that holds the two jars of a list of our own."""
    monkeypatch.setattr(jars, "listed", lambda: [JAR, OTHER])
    found = tmp_path / f"kafka-{jars.KAFKA_VERSION}"
    found.mkdir()
    for jar in (JAR, OTHER):
        (found / jar.file_name).write_bytes(CONTENT)
    return found


def test_the_committed_list_is_kafka_whole() -> None:
    names = {f"{jar.group}:{jar.artifact}" for jar in jars.listed()}
    versions = {jar.version for jar in jars.listed() if jar.artifact == "kafka_2.13"}
    assert versions == {jars.KAFKA_VERSION}
    assert {"org.apache.kafka:kafka-clients", "org.slf4j:slf4j-simple"} <= names
    assert len(names) == len(jars.listed()) == 46


def test_a_broken_line_of_a_list_is_named() -> None:
    good = f"{'0' * 64}  a:b:1"
    with pytest.raises(ValueError, match="line 2"):
        parse(f"{good}\n{'0' * 63}  a:b:1\n")
    with pytest.raises(ValueError, match="line 1"):
        parse(f"{'0' * 64}  a:b\n")


def test_good_jars_are_the_classpath(folder: Path) -> None:
    found = classpath(folder.parent, SilentProgress())
    assert found == [folder / "thing-1.2.jar", folder / "other-3.jar"]


def test_a_jar_with_another_digest_is_refused_and_removed(folder: Path) -> None:
    (folder / JAR.file_name).write_bytes(b"something else")
    with pytest.raises(LocalServersError, match=r"org\.example:thing:1\.2 .* SHA-256"):
        classpath(folder.parent, SilentProgress())
    assert not (folder / JAR.file_name).exists()


def test_a_jar_changed_after_the_check_is_noticed(folder: Path) -> None:
    classpath(folder.parent, SilentProgress())
    (folder / JAR.file_name).write_bytes(b"b jar")
    os.utime(folder / JAR.file_name, ns=(1, 1))
    with pytest.raises(LocalServersError, match="SHA-256"):
        classpath(folder.parent, SilentProgress())


def test_a_checked_jar_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classpath(folder.parent, SilentProgress())
    monkeypatch.setattr(jars, "_verify", lambda *_: pytest.fail("read again"))
    classpath(folder.parent, SilentProgress())


def test_a_new_list_makes_the_check_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classpath(folder.parent, SilentProgress())
    monkeypatch.setattr(
        jars, "listed", lambda: [Jar(JAR.group, JAR.artifact, JAR.version, "1" * 64)]
    )
    with pytest.raises(LocalServersError, match="it must be 1111"):
        classpath(folder.parent, SilentProgress())


def test_only_what_is_missing_is_downloaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / OTHER.file_name).unlink()
    asked: list[Jar] = []

    def download(missing: list[Jar], into: Path, _: object) -> None:
        asked.extend(missing)
        (into / OTHER.file_name).write_bytes(CONTENT)

    monkeypatch.setattr(jars, "_download", download)
    classpath(folder.parent, SilentProgress())
    assert asked == [OTHER]


class Registry:
    """Stands in for jgo's MavenContext; fails the first `failures` downloads."""

    failures = 0

    def __init__(self, repo_cache: Path) -> None:
        self._repo_cache = repo_cache

    def project(self, _group: str, artifact: str) -> Registry:
        self._name = artifact
        return self

    def at_version(self, _version: str) -> Registry:
        return self

    def artifact(self) -> Registry:
        return self

    def resolve(self) -> Path:
        if Registry.failures:
            Registry.failures -= 1
            raise ConnectionResetError("the connection was reset")
        self._repo_cache.mkdir(parents=True, exist_ok=True)
        path = self._repo_cache / self._name
        path.write_bytes(CONTENT)
        return path


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> type[Registry]:
    monkeypatch.setattr("jgo.maven.MavenContext", Registry)
    return Registry


def test_a_download_that_fails_is_tried_again(folder: Path, registry: type[Registry]) -> None:
    (folder / JAR.file_name).unlink()
    registry.failures = 2
    classpath(folder.parent, SilentProgress())
    assert (folder / JAR.file_name).read_bytes() == CONTENT
    assert not (folder / "incoming").exists()


def test_a_download_that_always_fails_is_an_error(folder: Path, registry: type[Registry]) -> None:
    (folder / JAR.file_name).unlink()
    registry.failures = 3
    with pytest.raises(LocalServersError, match=r"could not be downloaded .*was reset"):
        classpath(folder.parent, SilentProgress())
    assert registry.failures == 0


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalServersError, match="TICKRAIL_CACHE_DIR"):
        classpath(tmp_path / "file", SilentProgress())


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TICKRAIL_CACHE_DIR": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/tickrail"),
        ({"HOME": "/home/someone"}, "/home/someone/.cache/tickrail"),
    ],
)
def test_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("TICKRAIL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert jars.cache_dir() == Path(expected)
