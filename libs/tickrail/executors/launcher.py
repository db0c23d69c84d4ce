"""A small program that limits itself, becomes another user if asked to, and then becomes a command.

Between the start of a child and its program no code can be run safely in a process with threads, so
this stands between them. It reads what to do as JSON from the open file whose number is the first
argument; what goes wrong before the command has begun is written to the second one, which closes
when it begins. Run as a file of its own by `process.py`; imports nothing but the standard library.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys

_CPU_GRACE = 5
"""Seconds of CPU time between SIGXCPU and SIGKILL."""
_KINDS = {
    "cpu": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "memory": resource.RLIMIT_AS,  # last: what is still to do needs some
}


def limit(limits: dict[str, int]) -> None:
    """Set the limits; where this process has a lower one already, that stays."""
    for name, kind in _KINDS.items():
        if name not in limits:
            continue
        _, hard = resource.getrlimit(kind)
        most = limits[name] + (_CPU_GRACE if name == "cpu" else 0)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (min(limits[name], most), most))


def become(paths: list[str], argv: list[str], env: dict[str, str]) -> None:
    """Become the first of these programs that can be run.

    Raises:
        OSError: none can; that of the one which is there, if one is.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and that is inherited
    error = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in paths:
        try:
            os.execve(path, argv, env)  # noqa: S606 - a target is a program, no shell
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as e:
            error = e
    raise error


def main() -> None:
    """Read, limit, switch, become."""
    source, status = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(status, False)
    with os.fdopen(source, "rb") as file:
        plan = json.load(file)
    argv, env = plan["argv"], plan["env"]
    # Before the switch: the other user may not be able to read what Python would load for this.
    folders = [""] if "/" in argv[0] else os.get_exec_path(env)
    paths = [os.path.join(folder, argv[0]) for folder in folders]  # noqa: PTH118 - of any folder
    try:
        if plan["identity"] is not None:
            uid, gid, groups = plan["identity"]
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
        limit(plan["limits"])
        become(paths, argv, env)
    except OSError as e:
        os.write(status, json.dumps([e.errno, e.strerror]).encode())
    except ValueError as e:
        os.write(status, json.dumps([None, str(e)]).encode())
    sys.exit(127)


if __name__ == "__main__":
    main()
