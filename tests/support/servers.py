"""The real servers for tests: started once per run, stopped at its end.

TICKRAIL_TEST_SERVERS chooses where they come from:
  local       (the default) the pip-installed servers of tickrail.local, on ports of their own;
  containers  testcontainers on the engine that answers.

TICKRAIL_TEST_STACK_DIR names the data folder of local servers that already run (`tickrail up`, or
an earlier run that left them): they are used and left running. Where none run there, they are
started there and stopped at the end, and the folder is kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from tickrail.local.errors import LocalServersError
from tickrail.local.progress import PlainProgress
from tickrail.local.stack import LocalStack, StackAddresses, running

SERVERS_VARIABLE = "TICKRAIL_TEST_SERVERS"
STACK_DIR_VARIABLE = "TICKRAIL_TEST_STACK_DIR"
KINDS = ("local", "containers")


class Killable(Protocol):
    """A server that a test may kill or freeze."""

    @property
    def alive(self) -> bool:
        """Whether its process is there; it may be frozen."""
        ...

    def kill(self) -> None:
        """End it as SIGKILL does."""
        ...

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does, its connections open."""
        ...

    def thaw(self) -> None:
        """Let it go on; nothing where it is not frozen."""
        ...

    def restart(self) -> None:
        """Start it again on the same port and data, and wait until it answers."""
        ...


@dataclass(frozen=True)
class Servers:
    """Where the servers are.

    Attributes:
        postgres_dsn: the superuser's connection URI.
        etcd_endpoints: `host:port`.
        kafka_bootstrap: `host:port`.
        kafka: the broker itself where this run started it, so that a test may kill or freeze it
            (and must leave it running); None of a foreign stack.
    """

    postgres_dsn: str
    etcd_endpoints: str
    kafka_bootstrap: str
    kafka: Killable | None = None


@pytest.fixture(scope="session")
def stack() -> Iterator[Servers]:
    """PostgreSQL, etcd and Kafka, the same for the whole run."""
    with servers_of(os.environ.get(SERVERS_VARIABLE, "local")) as found:
        yield found


@pytest.fixture
def topic_prefix(stack: Servers) -> Iterator[str]:
    """A prefix for topic names that no other test uses; its topics are deleted afterwards."""
    prefix = f"t{uuid4().hex[:10]}."
    yield prefix
    delete_topics(stack.kafka_bootstrap, prefix)


def delete_topics(bootstrap: str, prefix: str) -> None:
    """Delete all topics whose names begin so, and wait until the broker has said yes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    if names:
        for future in admin.delete_topics(names, operation_timeout=30).values():
            future.result(timeout=30)


@contextmanager
def servers_of(kind: str) -> Iterator[Servers]:
    """The servers of this kind, for as long as the block runs."""
    if kind not in KINDS:
        pytest.exit(f"{SERVERS_VARIABLE}={kind}: it must be one of {', '.join(KINDS)}", 2)
    if kind == "containers":
        from tests.support.containers import containers  # noqa: PLC0415 - testcontainers is slow

        with containers() as (postgres, etcd, kafka, broker):
            yield Servers(postgres, etcd, kafka, broker)
    elif folder := os.environ.get(STACK_DIR_VARIABLE):
        with _of_folder(Path(folder)) as found:
            yield found
    else:
        with _temporary() as found:
            yield found


@contextmanager
def _of_folder(folder: Path) -> Iterator[Servers]:
    """The servers that run in a folder, or our own in it."""
    if addresses := running(folder):
        yield _servers(addresses)
        return
    stack = LocalStack(folder, fast=True, usual_ports=False)
    with _started(stack) as found:
        yield found


@contextmanager
def _temporary() -> Iterator[Servers]:
    """Our own servers in a folder that is deleted afterwards.

    Not one of pytest's: those are closed to the user that PostgreSQL runs as when we are root.
    """
    folder = Path(tempfile.mkdtemp(prefix="tickrail-test-"))
    folder.chmod(0o755)
    stack = LocalStack(folder, fast=True, usual_ports=False)
    try:
        with _started(stack) as found:
            yield found
    finally:
        stack.destroy()


@contextmanager
def _started(stack: LocalStack) -> Iterator[Servers]:
    try:
        addresses = stack.start(PlainProgress())
    except LocalServersError as error:
        pytest.exit(f"the servers for the tests could not be started: {error}", 3)
    try:
        yield _servers(addresses, stack.kafka)
    finally:
        stack.stop()


def _servers(addresses: StackAddresses, kafka: Killable | None = None) -> Servers:
    return Servers(
        postgres_dsn=addresses.postgres_dsn,
        etcd_endpoints=addresses.etcd_endpoints,
        kafka_bootstrap=addresses.kafka_bootstrap,
        kafka=kafka,
    )
