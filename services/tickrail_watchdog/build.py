"""Builds a watchdog from its settings: what is made of what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, SettingsError
from tickrail.core.notices import Hook
from tickrail.core.ports_metrics import Metrics
from tickrail.core.secrets import MASK
from tickrail.core.target_webhook import split_url
from tickrail.core.watch import WatchRules
from tickrail.engine.alarm_sender import AlarmSender
from tickrail.engine.watchdog import SilenceWatch, Watchdog, WatchdogSettings
from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.webhook import WebhookExecutor, WebhookSettings
from tickrail.executors.webhook_request import WHSEC, signing_key
from tickrail.runtime.settings import Settings
from tickrail.store.installation import Installation, read_installation
from tickrail.store.session import DatabaseSettings
from tickrail.store.watch import PostgresWatchStore


@dataclass(frozen=True, slots=True)
class Parts:
    """What a watchdog process is made of."""

    watchdog: Watchdog
    silences: SilenceWatch
    sender: AlarmSender
    executor: WebhookExecutor | None
    stores: tuple[PostgresWatchStore, ...]
    installation: Installation


def build(settings: Settings, clock: Clock, metrics: Metrics) -> Parts:
    """Check the server and put the parts together; nothing runs yet.

    Raises:
        UnavailableError: the database does not answer.
        SetupError: the installation is not as this process needs it.
        SettingsError: the webhook cannot be called, or its calls cannot be signed.
    """
    hook = _hook(settings)
    database = DatabaseSettings(
        settings.database_url, name=settings.name, prepare=settings.prepare_statements
    )
    installation = read_installation(
        database, partitions=settings.partitions, role="tickrail_engine"
    )
    executor = None if hook is None else _executor(settings, hook, clock)
    sender = AlarmSender(executor, hook, clock, metrics)
    slots, silences = PostgresWatchStore(database), PostgresWatchStore(database)
    rules = WatchRules(
        timedelta(seconds=settings.watchdog_late), timedelta(seconds=settings.watchdog_look_back)
    )
    watchdog = Watchdog(
        slots, clock, metrics, sender, WatchdogSettings(settings.watchdog_every, rules)
    )
    return Parts(
        watchdog,
        SilenceWatch(silences, metrics),
        sender,
        executor,
        (slots, silences),
        installation,
    )


def _hook(settings: Settings) -> Hook | None:
    """Where alarms go.

    Raises:
        SettingsError: that is no URL which can be called, or nothing can be signed with its secret.
    """
    url = settings.watchdog_webhook
    if not url:
        return None
    try:
        split_url(url)
    except ValueError as e:
        problem = Problem("TICKRAIL_WATCHDOG_WEBHOOK", f"{MASK} is not right", str(e))
        raise SettingsError("The watchdog cannot tell anybody.", (problem,)) from e
    secret = settings.watchdog_webhook_secret
    if secret and not _signs(secret.encode()):
        wanted = "whsec_ and a key in base64 (Standard Webhooks); unset, calls are not signed"
        problem = Problem("TICKRAIL_WATCHDOG_WEBHOOK_SECRET", f"{MASK} is not right", wanted)
        raise SettingsError("The watchdog cannot tell anybody.", (problem,))
    return Hook(url, secret or None)


def _signs(secret: bytes) -> bool:
    """Whether a receiver finds the same key in it."""
    try:
        return secret.strip().startswith(WHSEC) and signing_key(secret) != b""
    except ValueError:
        return False


def _executor(settings: Settings, hook: Hook, clock: Clock) -> WebhookExecutor:
    """What calls the webhook: an operator named the address, so it may be a private one."""
    parts = split_url(hook.url)
    host = parts.hostname or ""
    named = f"[{host}]" if ":" in host else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    policy = EgressPolicy.parse(",".join((*settings.egress_allow, f"{named}:{port}")))
    return WebhookExecutor(
        EgressGuard(policy, clock), clock, WebhookSettings(ca_file=settings.webhook_ca_file)
    )
