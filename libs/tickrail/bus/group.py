"""Which protocol the workers' group speaks: KIP-848 where the broker makes it worth it.

Under KIP-848 the broker assigns (`range`: a share of every topic for each member), and a join or a
leave moves only what must move. But how long a dead member keeps its partitions is the broker's
setting then, 45 s where nobody changed it: until they are given away, nobody reads the retries in
them. So it is chosen only where that time is short.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tickrail.bus.config import KafkaSettings, admin_config

LONGEST_SESSION = 15.0
"""Seconds: a group whose dead members keep their partitions for longer is not joined by itself."""
_SESSION = "consumer.session.timeout.ms"
_log = structlog.get_logger(__name__)


def choose_group_protocol(settings: KafkaSettings, timeout: float = 10.0) -> KafkaSettings:
    """The settings with `classic` or `consumer` in place of `auto`.

    Args:
        settings: how to reach Kafka, and the group.
        timeout: seconds that the broker may take for its answer; without one, or where the group's
            settings may not be read, the protocol is `classic`.
    """
    asked = settings.group_protocol
    # A static member that died is refused under KIP-848 until its session has ended.
    if asked == "classic" or (asked == "auto" and settings.group_instance):
        return replace(settings, group_protocol="classic")
    session = _session_timeout(settings, timeout)
    if asked == "consumer":
        if session is not None and session > LONGEST_SESSION:
            _log.warning(
                "dead workers keep their partitions for long",
                seconds=session,
                setting=f"group.{_SESSION} of the broker",
            )
        return settings
    short = session is not None and session <= LONGEST_SESSION
    chosen = "consumer" if short else "classic"
    _log.info("group protocol chosen", protocol=chosen, broker_session_timeout=session)
    return replace(settings, group_protocol=chosen)


def _session_timeout(settings: KafkaSettings, timeout: float) -> float | None:
    """How long the broker keeps a silent member of the group, seconds; None: not known.

    A broker before 4.0 knows no settings of a group.
    """
    group = ConfigResource(ConfigResource.Type.GROUP, settings.group)
    admin = AdminClient(admin_config(settings))  # kept: what it was asked ends with it
    try:
        asked = admin.describe_configs([group], request_timeout=timeout)
        found = asked[group].result(timeout + 1)[_SESSION].value
        return int(found) / 1000
    except (KafkaException, FutureTimeoutError, KeyError, TypeError, ValueError) as e:
        _log.debug("the group's settings cannot be read", group=settings.group, error=str(e))
        return None
