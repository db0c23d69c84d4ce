"""The executors of a worker: one for each kind of target that it may run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial

from tickrail.bus.config import KafkaSettings
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.targets import target_settings
from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, SettingsError
from tickrail.core.execution import Executor
from tickrail.core.ports_metrics import Metrics
from tickrail.core.resource_limits import parse_limits
from tickrail.executors.breaker import BreakerSettings
from tickrail.executors.command import CommandExecutor, CommandSettings
from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.kafka import KafkaExecutor
from tickrail.executors.kafka_message import KafkaTargetSettings
from tickrail.executors.noop import NoopExecutor
from tickrail.executors.task import TaskExecutor, TaskSettings
from tickrail.executors.webhook import WebhookExecutor, WebhookSettings
from tickrail.runtime.settings import Settings
from tickrail.sdk.app import App
from tickrail.store.target_facts import PostgresTargetFacts


def executors(
    settings: Settings,
    clock: Clock,
    kafka: KafkaSettings,
    facts: PostgresTargetFacts,
    metrics: Metrics,
    app: App | None,
) -> list[Executor]:
    """An executor for each kind of target that this worker may run.

    Args:
        settings: of the worker.
        clock: the clock.
        kafka: how Tickrail's own cluster is reached.
        facts: secrets, and what tenants may reach.
        metrics: where executors tell of themselves.
        app: the tasks that it runs.
    """
    found: list[Executor] = []
    kinds = settings.worker_targets
    if "webhook" in kinds:
        policy = EgressPolicy.parse(",".join(settings.egress_allow), ",".join(settings.egress_deny))
        how = WebhookSettings(
            per_origin=settings.webhook_origin_concurrency,
            idle_per_origin=min(settings.worker_concurrency, settings.webhook_origin_concurrency),
            breaker=BreakerSettings(
                settings.webhook_breaker_failures, settings.webhook_breaker_open
            ),
            ca_file=settings.webhook_ca_file,
        )
        guard = EgressGuard(policy, clock)
        found.append(WebhookExecutor(guard, clock, how, facts=facts, metrics=metrics))
    if "kafka" in kinds:
        to = target_settings(kafka, settings.target_kafka_bootstrap)
        connect = partial(KafkaPublisher, to, clock, "kafka targets")
        own = KafkaTargetSettings(prefix=settings.topic_prefix)
        found.append(KafkaExecutor(connect, facts.kafka_topics, clock, own))
    if "command" in kinds:
        found.append(CommandExecutor(clock, command_settings(settings, os.environ), facts))
    if app is not None:
        bound = TaskSettings(
            max_concurrency=settings.task_concurrency,
            program=(sys.executable, "-P", "-m", "tickrail.sdk.child", settings.worker_app),
        )
        found.append(TaskExecutor(app.tasks, clock, metrics, bound))
    if "noop" in kinds:
        found.append(NoopExecutor())
    return found


def command_settings(settings: Settings, environ: Mapping[str, str]) -> CommandSettings:
    """How commands are run.

    Args:
        settings: of the worker.
        environ: its variables.

    Raises:
        SettingsError: a variable may not be passed on, or a limit is none.
    """
    for name in settings.command_env:
        if name.startswith("TICKRAIL_") or "=" in name:
            expected = "names of variables that do not begin with TICKRAIL_"
            raise SettingsError(
                f"The setting command_env names {name}; right would be {expected}.",
                [Problem("command_env", f"has {name!r}", expected)],
            )
    return CommandSettings(
        max_concurrency=settings.command_concurrency,
        passed={n: environ[n] for n in settings.command_env if n in environ},
        limits=parse_limits(settings.command_limits, "command_limits"),
    )
