"""The servers for tests as containers, for machines with a container engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from tickrail.core.clock import SystemClock
from tickrail.local.etcd import healthy
from tickrail.local.kafka import brokers_at
from tickrail.local.ports import any_free
from tickrail.local.postgres import answers
from tickrail.local.procs import wait_until

POSTGRES_IMAGE = "postgres:18"
ETCD_IMAGE = "gcr.io/etcd-development/etcd:v3.6.7"
KAFKA_IMAGE = "apache/kafka:4.3.1"
PASSWORD = "tests"
READY_SECONDS = 90.0


@contextmanager
def containers() -> Iterator[tuple[str, str, str]]:
    """The PostgreSQL DSN, the etcd endpoint and the Kafka bootstrap server of new containers."""
    check_engine()
    with ExitStack() as running:
        postgres_port = any_free()
        etcd_port = any_free({postgres_port})
        kafka_port = any_free({postgres_port, etcd_port})
        for one in (_postgres(postgres_port), _etcd(etcd_port), _kafka(kafka_port)):
            running.enter_context(one)
        _wait("PostgreSQL", lambda: answers(postgres_port))
        _wait("etcd", lambda: healthy(etcd_port))
        _wait("Kafka", lambda: brokers_at(kafka_port) > 0)
        yield (
            f"postgresql://postgres:{PASSWORD}@127.0.0.1:{postgres_port}/postgres",
            f"127.0.0.1:{etcd_port}",
            f"127.0.0.1:{kafka_port}",
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


def _postgres(port: int) -> DockerContainer:
    return (
        DockerContainer(POSTGRES_IMAGE)
        .with_env("POSTGRES_PASSWORD", PASSWORD)
        .with_bind_ports(5432, ("127.0.0.1", port))
        .with_command("postgres -c max_connections=300 -c fsync=off -c full_page_writes=off")
    )


def _etcd(port: int) -> DockerContainer:
    return (
        DockerContainer(ETCD_IMAGE)
        .with_bind_ports(2379, ("127.0.0.1", port))
        .with_command(
            "/usr/local/bin/etcd --listen-client-urls=http://0.0.0.0:2379"
            f" --advertise-client-urls=http://127.0.0.1:{port}"
        )
    )


def _kafka(port: int) -> DockerContainer:
    """One KRaft node; clients are told the port on this host."""
    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(19092, ("127.0.0.1", port))
    settings = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "LISTENERS": "INTERNAL://:9092,OUTSIDE://:19092,CONTROLLER://:9093",
        "ADVERTISED_LISTENERS": f"INTERNAL://localhost:9092,OUTSIDE://127.0.0.1:{port}",
        "LISTENER_SECURITY_PROTOCOL_MAP": (
            "INTERNAL:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        "AUTO_CREATE_TOPICS_ENABLE": "false",
    }
    for name, value in settings.items():
        container = container.with_env(f"KAFKA_{name}", value)
    return container


def _wait(name: str, condition: Callable[[], bool]) -> None:
    if not wait_until(condition, READY_SECONDS, SystemClock()):
        pytest.exit(f"the {name} container did not answer within {READY_SECONDS:.0f} s", 3)
