"""Builds a worker from its settings: what is made of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tickrail.bus.codec import decode_launch, encode_dead_letter, encode_undecodable
from tickrail.bus.config import KafkaSettings
from tickrail.bus.consumer import LaunchConsumer
from tickrail.bus.group import choose_group_protocol
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.topics import (
    PRIORITIES,
    Topics,
    dlq_topic,
    launch_topic,
    retry_topic,
    work_topics,
)
from tickrail.bus.version import check_broker
from tickrail.core.clock import Clock
from tickrail.core.ids import LaunchId
from tickrail.core.limits import CLASS_WEIGHTS
from tickrail.core.ports import OwedLetter
from tickrail.core.ports_tracing import NO_TRACER, Tracer
from tickrail.engine.deadletters import LetterBox, RawBox, show_reasons
from tickrail.engine.intake import Intake, IntakeSettings
from tickrail.engine.notices import NoticeSender
from tickrail.engine.presence import Presence
from tickrail.engine.run_reports import RunReports
from tickrail.engine.runs import Runs, RunsSettings
from tickrail.runtime.failpoints import Failpoints, Inside, Watched
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import Settings
from tickrail.store.cipher import SecretCipher
from tickrail.store.installation import Installation, queue_kinds, read_installation
from tickrail.store.notices import PostgresNoticeStore
from tickrail.store.reports import PostgresReportStore
from tickrail.store.session import DatabaseSettings
from tickrail.store.target_facts import PostgresTargetFacts
from tickrail.store.worker import PostgresWorkerStore
from tickrail_worker.executors import executors
from tickrail_worker.presence import worker_info
from tickrail_worker.served import check_queues, find_app, served_kinds

RETRY_WEIGHT = 2
_REPORT_WAIT = 5.0
WITH_TASKS = 5
"""Extensions of a claim within its visibility timeout where tasks run in this process: one that
keeps the interpreter's lock keeps the extensions waiting."""
EXECUTOR_POINTS = Watched(inside={"start": Inside("executor.effect.after", 1)})


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker process is made of."""

    intake: Intake
    runs: Runs
    consumer: LaunchConsumer
    store: PostgresWorkerStore
    publishers: tuple[KafkaPublisher, ...]
    installation: Installation
    report_store: PostgresReportStore
    reports: RunReports
    presence: Presence
    facts: PostgresTargetFacts
    targets: tuple[str, ...]
    notice_store: PostgresNoticeStore
    notices: NoticeSender


def build(
    settings: Settings, clock: Clock, metrics: PrometheusMetrics, tracer: Tracer = NO_TRACER
) -> Parts:
    """Check the servers and put the parts together; nothing runs yet.

    Raises:
        UnavailableError, BusError: a server does not answer.
        SetupError: the installation is not as this process needs it.
        SettingsError: there is no such failpoint, or the app of tasks cannot be loaded.
    """
    app = find_app(settings)
    failpoints = Failpoints.parse(settings.failpoints)
    database = DatabaseSettings(
        settings.database_url, name=settings.name, prepare=settings.prepare_statements
    )
    installation = read_installation(
        database, partitions=settings.partitions, role="tickrail_engine"
    )
    targets = served_kinds(settings, app)
    check_queues(targets, queue_kinds(database, settings.worker_queues))
    kafka = KafkaSettings(
        **settings.group("kafka"), topic_prefix=settings.topic_prefix, client_id=settings.name
    )
    prefix, queues = settings.topic_prefix, settings.worker_queues
    check_broker(kafka)
    Topics(kafka).ensure_queues(prefix, queues, installation.kafka_partitions)

    postgres = PostgresWorkerStore(
        database, clock, written=lambda what: failpoints.hit(f"worker.{what}.written")
    )
    store = failpoints.watch(postgres, "worker")
    consumer = LaunchConsumer(choose_group_protocol(kafka), clock, settings.name)
    buried, dead = KafkaPublisher(kafka, clock, "undecodable"), KafkaPublisher(kafka, clock, "dead")
    letters = failpoints.watch(dead, "letters")
    box = LetterBox(letters, lambda queue: dlq_topic(prefix, queue), encode_dead_letter)

    show_reasons(metrics)
    queue_of = {topic: queue for queue in queues for topic in work_topics(prefix, queue)}
    raw = RawBox(
        buried,
        lambda topic: queue_of[topic],
        lambda queue: dlq_topic(prefix, queue),
        encode_undecodable,
        store.keep_undecodable,
    )

    def post(owed: Sequence[OwedLetter]) -> Sequence[tuple[LaunchId, datetime, int]]:
        return box.post(owed, _REPORT_WAIT)

    weights = {retry_topic(prefix, q): RETRY_WEIGHT for q in queues}
    weights |= {
        launch_topic(prefix, q, p): weight
        for q in queues
        for p, weight in zip(PRIORITIES, CLASS_WEIGHTS, strict=True)
    }
    report_store = PostgresReportStore(database)
    reports = RunReports(report_store)
    notice_store = PostgresNoticeStore(database)
    facts = PostgresTargetFacts(database, SecretCipher(settings.secret_keys))
    found = executors(settings, clock, kafka, facts, metrics, app)
    runs = Runs(
        store,
        [failpoints.watch(e, "executor", EXECUTOR_POINTS) for e in found],
        clock,
        metrics,
        RunsSettings() if app is None else RunsSettings(extensions=WITH_TASKS),
        offset_done=lambda place, offset: intake.offset_done(place, offset),  # noqa: PLW0108 - made below
        letters=post,
        reports=reports,
        tracer=tracer,
    )
    intake = Intake(
        failpoints.watch(consumer, "consumer"),
        store,
        runs,
        clock,
        metrics,
        IntakeSettings(settings.name, list(queue_of), settings.worker_concurrency, weights),
        decode=decode_launch,
        bury=raw.bury,
    )
    tasks = () if app is None else tuple(sorted(app.tasks))
    info = worker_info(settings, targets, tasks, lambda: runs.count, lambda: intake.closed)
    return Parts(
        intake,
        runs,
        consumer,
        store,
        (buried, dead),
        installation,
        report_store,
        reports,
        Presence(report_store, info),
        facts,
        targets,
        notice_store,
        NoticeSender(notice_store, found, facts, clock, metrics),
    )
