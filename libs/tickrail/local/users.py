"""The unprivileged system user that PostgreSQL runs under when we are root.

PostgreSQL refuses to run as root. As a plain user it runs as that user, and none of this is used.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tickrail.local.errors import LocalServersError

USER_NAME = "tickrail"
FALLBACK = "nobody"

OUTSIDE = Path("/var/lib/tickrail")
"""Where root keeps what the unprivileged user could not reach in the data folder."""


@dataclass(frozen=True)
class SystemUser:
    """A user of this system."""

    name: str
    uid: int
    gid: int


def server_user(cluster: Path) -> SystemUser | None:
    """The user for PostgreSQL; None when we are not root and it runs as ourselves.

    For root it is whoever owns the cluster already, else the system user `tickrail`, made if it
    does not exist, else `nobody`.

    Raises:
        LocalServersError: there is none and none can be made.
    """
    if os.geteuid() != 0:
        return None
    if cluster.exists() and cluster.stat().st_uid != 0:
        return _by_id(cluster.stat().st_uid)
    found = _find(USER_NAME) or _made() or _find(FALLBACK)
    if found is None:
        raise LocalServersError(
            "PostgreSQL does not run as root, and there is no unprivileged user to run it under:"
            f" make a system user named {USER_NAME}, or start tickrail as a plain user"
        )
    return found


def _made() -> SystemUser | None:
    """The user, made by one process at a time; None where it cannot be made.

    Of two that add it at once, one would go on with a user whom the other's failure takes away.
    """
    useradd = shutil.which("useradd")
    if useradd is None:
        return None
    folder = os.open("/etc", os.O_RDONLY | os.O_DIRECTORY)  # is never replaced, as its files are
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if (found := _find(USER_NAME)) is not None:
            return found
        subprocess.run(
            [useradd, "--system", "--no-create-home", "--shell", "/bin/false", USER_NAME],
            check=False,
            capture_output=True,
        )
        return _find(USER_NAME)
    finally:
        os.close(folder)


def reachable(path: Path, user: SystemUser) -> bool:
    """Whether this user may enter every folder above this absolute path."""
    return all(_may(parent, user, stat.S_IXOTH) for parent in path.resolve().parents)


def folder_for(user: SystemUser | None, wanted: Path) -> Path:
    """A folder that this user can reach: the wanted one, made, or one elsewhere behind a link.

    A clone below /root is closed to everyone else. Then the folder is made in /var/lib/tickrail,
    and the wanted path is a symbolic link to it; a link made earlier is followed.
    """
    if wanted.is_symlink():
        wanted.resolve().mkdir(parents=True, exist_ok=True)
    elif user is None or wanted.exists() or reachable(wanted, user):
        wanted.mkdir(exist_ok=True)
    else:
        OUTSIDE.mkdir(parents=True, exist_ok=True)
        OUTSIDE.chmod(0o755)
        wanted.symlink_to(tempfile.mkdtemp(prefix="postgres-", dir=OUTSIDE))
    folder = wanted.resolve()
    if user is not None:
        if not reachable(folder, user):
            raise LocalServersError(
                f"PostgreSQL runs as the user {user.name}, who cannot enter {folder};"
                " open the folders above it (chmod o+x) or choose another data folder"
            )
        os.chown(folder, user.uid, user.gid)
    return folder


def _may(path: Path, user: SystemUser, bit_for_others: int) -> bool:
    """The classic permission check: owner, else group, else others."""
    info = path.stat()
    if info.st_uid == user.uid:
        return bool(info.st_mode & (bit_for_others << 6))
    if info.st_gid == user.gid:
        return bool(info.st_mode & (bit_for_others << 3))
    return bool(info.st_mode & bit_for_others)


def _by_id(uid: int) -> SystemUser:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise LocalServersError(
            f"the PostgreSQL cluster belongs to the user id {uid}, whom this system does not know;"
            " start tickrail as that user, or on a new data folder"
        ) from None
    return SystemUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _find(name: str) -> SystemUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    if entry.pw_uid == 0:
        return None
    return SystemUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
