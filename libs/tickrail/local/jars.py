"""Kafka's jars: downloaded once into the user's cache, each checked against the committed list.

`kafka-jars.txt` names every jar by its Maven coordinates with the SHA-256 that it must have. The
list is the whole runtime classpath, so nothing is resolved at run time and nothing else can come
in. A full check is made after a download; at later starts size and modification time must be those
that were seen then.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tickrail.local.errors import LocalServersError, missing_extra
from tickrail.local.progress import Progress, step_of

KAFKA_VERSION = "4.3.1"
DIGESTS = "kafka-jars.txt"
DOWNLOADS_AT_ONCE = 8
DOWNLOAD_ATTEMPTS = 3
"""Each into a folder of its own, so that half a file is never taken for a whole one."""
STAMPS = "verified.json"


@dataclass(frozen=True)
class Jar:
    """One jar of the classpath: Maven coordinates and the digest that it must have."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def cache_dir() -> Path:
    """The user's cache folder for Tickrail.

    TICKRAIL_CACHE_DIR, else `tickrail` in XDG_CACHE_HOME, else `~/.cache/tickrail`.
    """
    if own := os.environ.get("TICKRAIL_CACHE_DIR"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "tickrail"
    return Path.home() / ".cache" / "tickrail"


def listed() -> list[Jar]:
    """The jars of the committed list."""
    text = (resources.files("tickrail.local") / DIGESTS).read_text()
    return parse(text)


def parse(text: str) -> list[Jar]:
    """Read a digest list: `sha256  group:artifact:version` on each line.

    Raises:
        ValueError: a line has another shape.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        digest, _, name = line.partition("  ")
        coordinates = name.split(":")
        if len(digest) != hashlib.sha256().digest_size * 2 or len(coordinates) != len("gav"):
            raise ValueError(f"{DIGESTS} line {number}: not `sha256  group:artifact:version`")
        group, artifact, version = coordinates
        jars.append(Jar(group, artifact, version, digest))
    return jars


def classpath(cache: Path, progress: Progress) -> list[Path]:
    """Kafka's jars in this cache, downloaded where they are missing.

    Raises:
        LocalServersError: a download failed, or a jar is not what the list says.
    """
    folder = cache / f"kafka-{KAFKA_VERSION}"
    jars = listed()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder):
            _ensure(jars, folder, progress)
    except OSError as error:
        raise LocalServersError(
            f"the cache folder {folder} cannot be used ({error});"
            " set TICKRAIL_CACHE_DIR to one that can be written"
        ) from error
    return [folder / jar.file_name for jar in jars]


def _ensure(jars: list[Jar], folder: Path, progress: Progress) -> None:
    stamps = _read_stamps(folder)
    wanted = [jar for jar in jars if not _is_stamped(jar, folder, stamps)]
    missing = [jar for jar in wanted if not (folder / jar.file_name).exists()]
    if missing:
        _download(missing, folder, progress)
    for jar in wanted:
        _verify(jar, folder)
        stamps[jar.file_name] = _stamp(folder / jar.file_name, jar)
    if wanted:
        (folder / STAMPS).write_text(json.dumps(stamps, indent=1) + "\n")


def _download(missing: list[Jar], folder: Path, progress: Progress) -> None:
    """Fetch jars through jgo, several at a time."""
    try:
        from jgo.maven import MavenContext  # noqa: PLC0415 - an optional extra, needed only here
    except ImportError as error:
        raise missing_extra("jgo") from error
    repository = folder / "incoming"
    contexts = [MavenContext(repo_cache=repository / str(n)) for n in range(DOWNLOAD_ATTEMPTS)]

    def fetch(jar: Jar) -> None:
        for context in contexts:
            component = context.project(jar.group, jar.artifact).at_version(jar.version)
            try:
                shutil.move(component.artifact().resolve(), folder / jar.file_name)
            except (OSError, RuntimeError):  # the network's and jgo's own
                if context is contexts[-1]:
                    raise
            else:
                return

    shutil.rmtree(repository, ignore_errors=True)  # an interrupted download is not trusted
    with (
        step_of(progress, f"downloading Apache Kafka {KAFKA_VERSION}") as step,
        ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool,
    ):
        try:
            for done, _ in enumerate(pool.map(fetch, missing), start=1):
                step.advance(done, len(missing))
        except Exception as error:
            pool.shutdown(cancel_futures=True)
            raise LocalServersError(
                f"Kafka's jars could not be downloaded ({error});"
                " the first start needs a connection to a Maven repository"
            ) from error
        shutil.rmtree(repository, ignore_errors=True)
        step.done(f"{len(missing)} jars")


def _verify(jar: Jar, folder: Path) -> None:
    """Compare a jar with the list; what differs is removed, so that the next start fetches it."""
    path = folder / jar.file_name
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        path.unlink()
        raise LocalServersError(
            f"{jar} in {folder} is not the file that Tickrail was made with: its SHA-256 is"
            f" {found}, it must be {jar.sha256}; the file was removed, the next start"
            " downloads it again"
        )


def _stamp(path: Path, jar: Jar) -> list[int | str]:
    info = path.stat()
    return [info.st_size, info.st_mtime_ns, jar.sha256]


def _is_stamped(jar: Jar, folder: Path, stamps: dict[str, list[int | str]]) -> bool:
    path = folder / jar.file_name
    return path.exists() and stamps.get(jar.file_name) == _stamp(path, jar)


def _read_stamps(folder: Path) -> dict[str, list[int | str]]:
    try:
        stored = json.loads((folder / STAMPS).read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Two first starts at once download once; the second waits for the first."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
