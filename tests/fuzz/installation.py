"""An API process with real servers for a fuzz run: two tenants, an operator, keys of all kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.api import ALLOWED, PEPPER, SECRET_KEY, new_key
from tests.support.database import PARTITIONS, Database, new_database
from tests.support.servers import Servers, servers_of

from tickrail.store.migrate import migrate

_PROGRAM = str(Path(sys.executable).with_name("tickrail"))


@dataclass(frozen=True)
class Installation:
    """What is fuzzed.

    Attributes:
        url: where the API process answers.
        status: where its status does.
        keys: tokens by name: `acme`, `beta`, `operator`, and `revoked`, which was acme's.
        own: ids of these keys, ids and names of their tenants: what a run must not end.
        database: to look into.
        log: what the process writes.
    """

    url: str
    status: str
    keys: dict[str, str]
    own: Sequence[str]
    database: Database
    log: Path


@contextmanager
def installation(folder: Path) -> Iterator[Installation]:
    """Start everything, for as long as the block runs.

    Args:
        folder: for the log.
    """
    with (
        servers_of(os.environ.get("TICKRAIL_TEST_SERVERS", "local")) as servers,
        new_database(servers.postgres_dsn) as database,
    ):
        migrate(database.owner_url, partitions=PARTITIONS)
        names: tuple[str | None, ...] = ("acme", "beta", None, "acme")
        keys = [new_key(database, name) for name in names]
        database.run("update api_keys set revoked_at = now() where id = %s", keys[-1].key_id)
        tokens = dict(
            zip(("acme", "beta", "operator", "revoked"), (k.token for k in keys), strict=True)
        )
        own = [str(part) for k in keys for part in (k.key_id, k.tenant) if part is not None]
        own += ["acme", "beta"]
        log = folder / "api.log"
        with log.open("w") as written, _process(database, servers, written.fileno()) as process:
            line = _serving(process, log)
            yield Installation(line["api"], line["status"], tokens, own, database, log)


@contextmanager
def _process(database: Database, servers: Servers, log: int) -> Iterator[subprocess.Popen[bytes]]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")}
    settings = {
        "database_url": database.api_url,
        "etcd_endpoints": servers.etcd_endpoints,
        "etcd_prefix": f"/{database.name}/",
        "api_port": "0",
        "log_format": "json",
        "key_pepper": PEPPER,
        "secret_keys": SECRET_KEY,
        "egress_allow": ALLOWED,
        # All come from one address, wrong keys by the hundred among them.
        "api_key_failures": "0",
    }
    given = {f"TICKRAIL_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen([_PROGRAM, "api"], env=clean | given, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _serving(process: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    """The line in which the process says where it serves."""
    with log.open() as lines:
        while process.poll() is None:
            line = lines.readline()
            if not line.endswith("\n"):
                lines.seek(lines.tell() - len(line))
                continue
            found: dict[str, str] = json.loads(line)
            if found["event"] == "serving":
                return found
    raise RuntimeError(f"the API did not start:\n{log.read_text()[-3000:]}")
