"""The producer of `kafka` targets: its settings beside those of Tickrail's own messages."""

from __future__ import annotations

from dataclasses import replace

from tickrail.bus.config import KafkaSettings

_PARTITIONER = {"partitioner": "murmur2_random"}
"""The hash of Kafka's own clients, so that a key's messages share a partition whoever sends them;
librdkafka's is another. Without a key the partition is random."""


def target_settings(settings: KafkaSettings, bootstrap: str = "") -> KafkaSettings:
    """How messages of targets are sent.

    Args:
        settings: those of Tickrail's own cluster.
        bootstrap: brokers of another cluster, reached by the same protocol and credentials; empty
            for Tickrail's own.
    """
    return replace(
        settings,
        bootstrap=bootstrap or settings.bootstrap,
        client_id=f"{settings.client_id}-targets",
        extra={**_PARTITIONER, **settings.extra},
    )
