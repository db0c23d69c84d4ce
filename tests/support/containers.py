"""The servers for tests as containers, for machines with a container engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from tickrail.core.clock import SystemClock
from tickrail.local.etcd import healthy
from tickrail.local.kafka import FAST_SETTINGS, SETTINGS, brokers_at
from tickrail.local.ports import any_free
from tickrail.local.postgres import answers
from tickrail.local.procs import wait_until

POSTGRES_IMAGE = "postgres:18.6"
ETCD_IMAGE = "gcr.io/etcd-development/etcd:v3.6.7"
KAFKA_IMAGE = "apache/kafka:4.3.1"
PASSWORD = "tests"
READY_SECONDS = 90.0


class Broker:
    """A broker in a container, as a server that a test may kill or freeze."""

    def __init__(self, container: DockerContainer, port: int) -> None:
        self._container = container
        self._port = port

    @property
    def alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return self._status() in {"running", "paused"}

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self._container.get_wrapped_container().kill()

    def freeze(self) -> None:
        """Stop its processes where they are."""
        self._container.get_wrapped_container().pause()

    def thaw(self) -> None:
        """Let them go on."""
        if self._status() == "paused":
            self._container.get_wrapped_container().unpause()

    def restart(self) -> None:
        """Start it again on the same port and data, and wait until it answers."""
        self._container.get_wrapped_container().start()
        _wait("Kafka", lambda: brokers_at(self._port) > 0)

    def _status(self) -> str:
        container = self._container.get_wrapped_container()
        container.reload()
        return str(container.status)


@contextmanager
def containers() -> Iterator[tuple[str, str, str, Broker]]:
    """The PostgreSQL DSN, the etcd endpoint and the Kafka bootstrap server of new containers.

    And the broker itself, for tests that kill or freeze it.
    """
    check_engine()
    with ExitStack() as running:
        postgres_port = any_free()
        etcd_port = any_free({postgres_port})
        kafka_port = any_free({postgres_port, etcd_port})
        kafka = _kafka(kafka_port)
        for one in (_postgres(postgres_port), _etcd(etcd_port), kafka):
            running.enter_context(one)
        _wait("PostgreSQL", lambda: answers(postgres_port))
        _wait("etcd", lambda: healthy(etcd_port))
        _wait("Kafka", lambda: brokers_at(kafka_port) > 0)
        yield (
            f"postgresql://postgres:{PASSWORD}@127.0.0.1:{postgres_port}/postgres",
            f"127.0.0.1:{etcd_port}",
            f"127.0.0.1:{kafka_port}",
            Broker(kafka, kafka_port),
        )


def check_engine() -> None:
    """End the run with one line where no container engine answers."""
    try:
        DockerClient().client.ping()
    except Exception as error:  # noqa: BLE001 - the client raises whatever its transport raises
        reason = str(error).splitlines()[0]
        pytest.exit(
            f"TICKRAIL_TEST_SERVERS=containers: no container engine answers ({reason});"
            " start one, set DOCKER_HOST, or run the tests on the local servers",
            3,
        )


def _on_loopback(image: str, inside: int, port: int) -> DockerContainer:
    """A container whose port is published on loopback; `with_bind_ports` would do so everywhere."""
    container = DockerContainer(image)
    container.ports[f"{inside}/tcp"] = ("127.0.0.1", port)  # as the engine's client takes it
    return container


def _postgres(port: int) -> DockerContainer:
    return (
        _on_loopback(POSTGRES_IMAGE, 5432, port)
        .with_env("POSTGRES_PASSWORD", PASSWORD)
        .with_command("postgres -c max_connections=300 -c fsync=off -c full_page_writes=off")
    )


def _etcd(port: int) -> DockerContainer:
    return _on_loopback(ETCD_IMAGE, 2379, port).with_command(
        "/usr/local/bin/etcd --listen-client-urls=http://0.0.0.0:2379"
        f" --advertise-client-urls=http://127.0.0.1:{port}"
    )


def _kafka(port: int) -> DockerContainer:
    """One KRaft node, set as the local one is; clients are told the port on this host."""
    container = _on_loopback(KAFKA_IMAGE, 19092, port)
    own = {
        "listeners": "INTERNAL://:9092,OUTSIDE://:19092,CONTROLLER://:9093",
        "advertised.listeners": f"INTERNAL://localhost:9092,OUTSIDE://127.0.0.1:{port}",
        "listener.security.protocol.map": (
            "INTERNAL:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INTERNAL",
        "controller.quorum.voters": "1@localhost:9093",
    }
    for key, value in {**SETTINGS, **FAST_SETTINGS, **own}.items():
        container = container.with_env(f"KAFKA_{key.replace('.', '_').upper()}", value)
    return container


def _wait(name: str, condition: Callable[[], bool]) -> None:
    if not wait_until(condition, READY_SECONDS, SystemClock()):
        pytest.exit(f"the {name} container did not answer within {READY_SECONDS:.0f} s", 3)
