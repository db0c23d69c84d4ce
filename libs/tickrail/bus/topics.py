"""Names of topics, and making and checking them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Event
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from tickrail.bus.config import KafkaSettings, admin_config
from tickrail.bus.errors import bus_error, from_exception
from tickrail.core.errors import Problem, SetupError
from tickrail.core.ports_bus import BusError

PRIORITIES = ("high", "normal", "low")
"""The classes of launch topics, first to last."""

_DAY_MS = 86_400_000
LAUNCH_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS)}
"""A message older than this is published again from Postgres if its launch still waits."""
DLQ_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)}

_KNOWN_TRIES, _KNOWN_EVERY = 50, 0.1
"""How often, and seconds apart, a topic is asked for that Kafka says is there and does not show."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def launch_topic(prefix: str, queue: str, priority: str) -> str:
    """The topic of first attempts of a queue and class (high, normal, low)."""
    return f"{prefix}.launch.{queue}.{priority}"


def retry_topic(prefix: str, queue: str) -> str:
    """The topic of later attempts of a queue."""
    return f"{prefix}.retry.{queue}"


def dlq_topic(prefix: str, queue: str) -> str:
    """The topic of dead letters of a queue."""
    return f"{prefix}.dlq.{queue}"


def work_topics(prefix: str, queue: str) -> tuple[str, ...]:
    """What a worker of a queue reads: high, normal, low, retry."""
    return (*(launch_topic(prefix, queue, p) for p in PRIORITIES), retry_topic(prefix, queue))


def queue_topics(prefix: str, queue: str) -> tuple[str, ...]:
    """Every topic of a queue."""
    return (*work_topics(prefix, queue), dlq_topic(prefix, queue))


class Topics:
    """Makes and checks topics."""

    def __init__(self, settings: KafkaSettings, timeout: float = 15.0) -> None:
        """Connects when first used.

        Args:
            settings: how to reach Kafka.
            timeout: seconds for each call.
        """
        self._admin = AdminClient(admin_config(settings))
        self._timeout = timeout
        self._where = settings.bootstrap

    def ensure_queues(self, prefix: str, queues: Iterable[str], partitions: int) -> list[str]:
        """Make the topics of these queues that are not there, and check the counts of all.

        Raises:
            SetupError: a topic has another number of partitions.
            BusError: Kafka does not answer.
        """
        named = list(queues)
        work = [topic for queue in named for topic in work_topics(prefix, queue)]
        letters = [dlq_topic(prefix, queue) for queue in named]
        return [
            *self.ensure(work, partitions, config=LAUNCH_CONFIG),
            *self.ensure(letters, partitions, config=DLQ_CONFIG),
        ]

    def ensure(
        self,
        names: Sequence[str],
        partitions: int,
        *,
        replication: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Make the topics that are not there, and check the partition count of all.

        Two processes may do this at once. A topic is never changed: more partitions are added by
        a command, since a count that differs between processes would scatter a job's messages.

        Args:
            names: topics.
            partitions: how many Kafka partitions each has (K).
            replication: copies of each; -1 is the broker's default.
            config: the topic's settings; those of a dead letter topic are the caller's choice.

        Returns:
            The topics that were made.

        Raises:
            SetupError: an illegal name, another partition count.
            BusError: Kafka does not answer, or refuses.
        """
        illegal = [n for n in names if not _LEGAL.fullmatch(n)]
        if illegal:
            raise SetupError(
                "A topic's name is not legal.",
                [Problem("", repr(n), "letters, digits, . _ -, at most 249") for n in illegal],
            )
        missing = [n for n, count in self.partitions(names).items() if count == 0]
        made = self._create(missing, partitions, replication, dict(config or LAUNCH_CONFIG))
        # What this call made has the count that was asked for.
        checked = self._known([n for n in names if n not in made])
        wrong = [
            Problem("", f"topic {name} has {count} partitions", f"{partitions} partitions")
            for name, count in checked.items()
            if count not in {partitions, 0}
        ]
        if wrong:
            raise SetupError("Kafka topics have another partition count than configured.", wrong)
        return sorted(made)

    def _known(self, names: Sequence[str]) -> dict[str, int]:
        """The partition counts of topics that are there.

        One that another process has just made may be unknown to the broker for a moment.
        """
        found = self.partitions(names)
        moment = Event()
        for _ in range(_KNOWN_TRIES):
            if all(found.values()):
                break
            moment.wait(_KNOWN_EVERY)
            found = self.partitions(names)
        return found

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has; 0 for one that is not there.

        Raises:
            BusError: Kafka does not answer.
        """
        known = self._metadata().topics
        return {n: len(known[n].partitions) if n in known else 0 for n in names}

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; those that are not there are no error.

        Raises:
            BusError: Kafka does not answer, or refuses.
        """
        if names:
            futures = self._admin.delete_topics(list(names), operation_timeout=self._timeout)
            self._settle(futures, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def named(self, prefix: str) -> list[str]:
        """The topics whose names start with this.

        Raises:
            BusError: Kafka does not answer.
        """
        return sorted(n for n in self._metadata().topics if n.startswith(prefix))

    def ping(self) -> None:
        """Ask the cluster for anything.

        Raises:
            BusError: Kafka does not answer.
        """
        self._metadata()

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=self._timeout)
        except KafkaException as error:
            known = from_exception(error)
            raise BusError(f"{known.detail}; asked {self._where}", fatal=known.fatal) from error

    def _create(
        self, names: Sequence[str], partitions: int, replication: int, config: dict[str, str]
    ) -> set[str]:
        if not names:
            return set()
        new = [
            NewTopic(n, num_partitions=partitions, replication_factor=replication, config=config)
            for n in names
        ]
        futures = self._admin.create_topics(new, operation_timeout=self._timeout)
        return self._settle(futures, KafkaError.TOPIC_ALREADY_EXISTS)

    def _settle(self, futures: Mapping[str, Any], ordinary: int) -> set[str]:
        """Wait for each; the names done by this call. The code `ordinary` is no error."""
        done: set[str] = set()
        pending = cast("dict[str, Future[None]]", dict(futures))
        wait(pending.values(), timeout=self._timeout + 5)
        for name, future in pending.items():
            try:
                future.result(timeout=0)
                done.add(name)
            except KafkaException as error:
                inner = error.args[0]
                if not isinstance(inner, KafkaError):
                    raise from_exception(error, name) from error
                if inner.code() != ordinary:
                    raise bus_error(inner, name) from error
            except TimeoutError as error:
                raise BusError(f"Kafka did not answer about topic {name}", topic=name) from error
        return done
