"""The executors of a worker: one for each kind of target that it may run."""

from __future__ import annotations

from tickrail.core.clock import Clock
from tickrail.core.execution import Executor
from tickrail.executors.command import CommandExecutor, CommandSettings
from tickrail.executors.egress import EgressGuard, EgressPolicy
from tickrail.executors.noop import NoopExecutor
from tickrail.executors.webhook import WebhookExecutor
from tickrail.runtime.settings import Settings


def executors(settings: Settings, clock: Clock) -> list[Executor]:
    """An executor for each kind of target that this worker may run."""
    found: list[Executor] = []
    kinds = settings.worker_targets
    if "webhook" in kinds:
        policy = EgressPolicy.parse(",".join(settings.egress_allow))
        found.append(WebhookExecutor(EgressGuard(policy, clock), clock))
    if "command" in kinds:
        bound = CommandSettings(max_concurrency=settings.command_concurrency)
        found.append(CommandExecutor(clock, bound))
    if "noop" in kinds:
        found.append(NoopExecutor())
    return found
