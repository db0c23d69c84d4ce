"""Builds a scheduler from its settings: what is made of what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tickrail.bus.codec import encode_dead_letter, encode_launch
from tickrail.bus.config import KafkaSettings
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.topics import (
    PRIORITIES,
    Topics,
    dlq_topic,
    launch_topic,
    retry_topic,
)
from tickrail.bus.version import check_broker
from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings
from tickrail.core.clock import Clock
from tickrail.core.ports import Publication
from tickrail.core.ports_tracing import NO_TRACER, Tracer
from tickrail.core.sharding import kafka_partition
from tickrail.engine.backfills import Backfills
from tickrail.engine.deadletters import LetterBox, OwedLetters, show_reasons
from tickrail.engine.forecast import Forecast
from tickrail.engine.lease_watch import LeaseWatch
from tickrail.engine.new_topics import NewTopics
from tickrail.engine.owner import OwnerLoop, OwnerParts
from tickrail.engine.ownership import Ownership, OwnershipSettings
from tickrail.engine.reaper import Reaper, ReaperSettings
from tickrail.engine.relay import Relay, RelaySettings, Route
from tickrail.engine.tick import Tick
from tickrail.engine.upkeep import Upkeep
from tickrail.engine.zone_data import ZoneData
from tickrail.runtime.failpoints import Failpoints, Inside, Watched
from tickrail.runtime.loop import LoopThread
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import Settings
from tickrail.store.fence import PostgresFenceStore
from tickrail.store.forecast import PostgresJobSampler
from tickrail.store.installation import Installation, queue_names, read_installation
from tickrail.store.listen import WakeListener
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.session import DatabaseSettings
from tickrail.store.upkeep import PostgresUpkeep

OWNER_POINTS = Watched(
    inside={
        "tick": Inside("owner.tick.locked", 2, "plan"),
        "reap": Inside("owner.reap.locked", 2),
    }
)
RELAY_POINTS = Watched(result={"poll": "relay.report.after"})


@dataclass(frozen=True, slots=True)
class Parts:
    """What a scheduler process is made of, in the order in which it is started."""

    ownership: Ownership
    owner: OwnerLoop
    owner_loop: LoopThread
    relay: Relay
    loops: tuple[LoopThread, ...]
    publisher: KafkaPublisher
    coordinator: EtcdCoordinator
    store: PostgresOwnerStore
    fence: PostgresFenceStore
    listener: WakeListener
    installation: Installation


def database_settings(settings: Settings) -> DatabaseSettings:
    """How this process reaches the database."""
    return DatabaseSettings(
        settings.database_url, name=settings.name, prepare=settings.prepare_statements
    )


def build(
    settings: Settings, clock: Clock, metrics: PrometheusMetrics, tracer: Tracer = NO_TRACER
) -> Parts:
    """Check the servers and put the parts together; nothing runs yet.

    Raises:
        UnavailableError, BusError: a server does not answer.
        SetupError: the installation is not as this process needs it.
        SettingsError: there is no such failpoint.
    """
    failpoints = Failpoints.parse(settings.failpoints)
    database = database_settings(settings)
    installation = read_installation(
        database, partitions=settings.partitions, role="tickrail_engine"
    )
    kafka = KafkaSettings(
        **settings.group("kafka"), topic_prefix=settings.topic_prefix, client_id=settings.name
    )
    coordinator = EtcdCoordinator(EtcdSettings(**settings.group("etcd")))
    coordinator.version()
    check_broker(kafka)
    topics = Topics(kafka)
    queues = queue_names(database)
    for queue in queues:
        metrics.gauge("launches_queued", 0, queue=queue)
    topics.ensure_queues(settings.topic_prefix, queues, installation.kafka_partitions)

    postgres = PostgresOwnerStore(
        database,
        clock,
        history_days=settings.history_days,
        written=lambda what: failpoints.hit(f"owner.{what}.written"),
    )
    store = failpoints.watch(postgres, "owner", OWNER_POINTS)
    fence = PostgresFenceStore(database)
    publisher = KafkaPublisher(kafka, clock, "relay")
    ownership = Ownership(
        OwnershipSettings(
            name=settings.name,
            partitions=installation.partitions,
            ttl=settings.lease_ttl,
            renew_every=settings.renew_every,
            margin=settings.lease_margin,
            weight=settings.member_weight,
        ),
        failpoints.watch(coordinator, "etcd"),
        failpoints.watch(fence, "fence"),
        clock,
        healthy=lambda: owner_loop.trouble(clock.monotonic()) is None,
        wake=lambda: ownership_loop.wake(),  # noqa: PLW0108 - it is made below
        changed=lambda: wake(),  # noqa: PLW0108 - it is made below
    )

    def route(p: Publication) -> Route:
        partition = kafka_partition(p.partition, installation.kafka_partitions)
        if p.attempt > 1:
            return Route(retry_topic(kafka.topic_prefix, p.queue), partition)
        return Route(launch_topic(kafka.topic_prefix, p.queue, PRIORITIES[p.priority]), partition)

    relay = Relay(
        store,
        failpoints.watch(publisher, "relay", RELAY_POINTS),
        route,
        encode_launch,
        clock,
        metrics,
        RelaySettings(installation.partitions, settings.relay_outstanding),
        tracer,
    )
    box = LetterBox(
        failpoints.watch(KafkaPublisher(kafka, clock, "dead letters"), "letters"),
        lambda queue: dlq_topic(kafka.topic_prefix, queue),
        encode_dead_letter,
    )
    show_reasons(metrics)
    parts = OwnerParts(
        Tick(store, metrics, tracer=tracer),
        relay,
        Reaper(
            store, clock, metrics, ReaperSettings(lost_after=timedelta(seconds=settings.lost_after))
        ),
        OwedLetters(store, box, metrics),
        ZoneData(postgres.zone_data, metrics),
        Backfills(store, metrics),
    )
    owner = OwnerLoop(ownership, store, parts, clock, metrics)
    owner_loop = LoopThread("owner", owner.run_once, clock, stuck_after=15.0, metrics=metrics)

    def wake() -> None:
        owner.wake()
        owner_loop.wake()

    new_topics = NewTopics(
        lambda: relay.missing,
        lambda: queue_names(database),
        lambda named: topics.ensure_queues(
            settings.topic_prefix, named, installation.kafka_partitions
        ),
        queues,
    )
    records = PostgresUpkeep(database)
    keeper = Upkeep(
        records,
        timedelta(days=settings.audit_days),
        timedelta(days=settings.history_days),
        metrics,
    )
    forecast = Forecast(PostgresJobSampler(database), ownership.owned, metrics, clock)
    listener = WakeListener(database, wake)
    leases = LeaseWatch(ownership, metrics, settings.lease_ttl - settings.lease_margin)
    ownership_loop = LoopThread("ownership", leases.run_once, clock, metrics=metrics)
    loops = (
        owner_loop,
        ownership_loop,
        LoopThread("renewal", leases.renew_once, clock, metrics=metrics),
        LoopThread("topics", new_topics.run_once, clock, stuck_after=120.0, metrics=metrics),
        LoopThread(
            "upkeep",
            keeper.run_once,
            clock,
            stuck_after=120.0,
            at_end=records.close,
            metrics=metrics,
        ),
        LoopThread("forecast", forecast.run_once, clock, stuck_after=120.0, metrics=metrics),
        LoopThread("wake-ups", listener.run_once, clock, at_end=listener.close, metrics=metrics),
    )
    coordinator.watch(ownership_loop.wake)
    return Parts(
        ownership, owner, owner_loop, relay, loops, publisher, coordinator, postgres, fence,
        listener, installation,
    )  # fmt: skip
