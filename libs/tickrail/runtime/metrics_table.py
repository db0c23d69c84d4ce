"""Every metric there is: its name, kind and meaning, who tells it, its labels and their bounds.

`docs/tables.py` writes docs/metrics.md from it; dashboards and alert rules name nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tickrail.core.dead_letters import Reason
from tickrail.core.limits import THROTTLED
from tickrail.core.plan import SkipReason

PREFIX: Final = "tickrail_"

LAG: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds between an instant and what should follow it at once."""
SHORT: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds of a turn, a statement, a request."""
RUN: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 43200)
"""Seconds of a run."""

OTHER: Final = "other"
"""The value of a label for all that is beyond its bound."""
TOP_TENANTS: Final = 20
"""So many tenants are told apart in one process; the rest are `other` together."""

Kind = Literal["counter", "gauge", "histogram"]
Together = Literal["sum", "least"]

_SCHEDULER = ("scheduler",)
_WORKER = ("worker",)
_API = ("api",)
_SCHEDULER_API = ("scheduler", "api")
_SCHEDULER_WORKER = ("scheduler", "worker")
_WATCHDOG = ("watchdog",)
_ALL = ("api", "scheduler", "worker", "watchdog")


@dataclass(frozen=True)
class Metric:
    """One row.

    Attributes:
        name: without the prefix.
        kind: what it is to Prometheus.
        help: its meaning.
        told_by: the services that tell it; another shows it only when it has something to tell.
        labels: their names.
        buckets: a histogram's bounds in seconds.
        together: what a gauge's `other` tells of the values beyond a label's bound.
    """

    name: str
    kind: Kind
    help: str
    told_by: tuple[str, ...]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    together: Together = "sum"


@dataclass(frozen=True)
class Bound:
    """How many values a label has in one process at most, and which; `other` for more.

    `start`: those of a counter's only label that are shown as 0 from the start, so that the first
    count is a rise and no beginning.
    """

    most: int
    values: str
    start: tuple[str, ...] = ()


METRICS: Final[tuple[Metric, ...]] = (
    # Planning
    Metric(
        "schedule_lag_seconds",
        "histogram",
        "From a slot's due instant to its record.",
        _SCHEDULER,
        (),
        LAG,
    ),
    Metric(
        "slots_skipped_total",
        "counter",
        "Due slots that were not launched.",
        _SCHEDULER,
        ("reason",),
    ),
    Metric("backfill_launches_total", "counter", "Launches made by backfills.", _SCHEDULER),
    Metric("tzdata_moves_total", "counter", "Next runs moved by newer time zone data.", _SCHEDULER),
    Metric(
        "jobs_unplannable_total",
        "counter",
        "Jobs that could not be planned, each try.",
        _SCHEDULER,
    ),
    Metric(
        "jobs_overdue_seconds",
        "gauge",
        "How long the active job that is due longest waits for its launch or skip, whoever owns"
        " its partition or nobody; NaN: not known.",
        _API,
    ),
    Metric(
        "slots_forecast",
        "gauge",
        "Slots expected in each five minutes (UTC) of the next 24 h, in the partitions that this"
        " process owns, calendars left aside; of many jobs a sample, scaled up.",
        _SCHEDULER,
        ("hour", "minute"),
    ),
    # Ownership
    Metric("partitions_owned", "gauge", "Partitions that this process owns.", _SCHEDULER),
    Metric(
        "partitions_unowned",
        "gauge",
        "Partitions without an owner, as a scheduler or an API process sees it; NaN: not known.",
        _SCHEDULER_API,
    ),
    Metric(
        "ownership_epoch",
        "gauge",
        "Epoch of each partition owned here, 0 after.",
        _SCHEDULER,
        ("partition",),
    ),
    Metric(
        "ownership_changes_total",
        "counter",
        "Partitions gained and lost.",
        _SCHEDULER,
        ("change",),
    ),
    Metric("lease_remaining_seconds", "gauge", "What is left of the trust window.", _SCHEDULER),
    Metric(
        "lease_nearly_lost_total",
        "counter",
        "Times that less than a third of the trust window was left.",
        _SCHEDULER,
    ),
    Metric("leases_lost_total", "counter", "Trust windows that ended while owning.", _SCHEDULER),
    Metric(
        "members",
        "gauge",
        "Schedulers that are present, as a scheduler or an API process sees it; NaN: not known.",
        _SCHEDULER_API,
    ),
    Metric(
        "fenced_writes_total",
        "counter",
        "Writes refused since another owns the partition.",
        _SCHEDULER,
    ),
    Metric(
        "clock_skew_seconds",
        "gauge",
        "How far this machine's clock is ahead of PostgreSQL's.",
        _SCHEDULER,
    ),
    # Publishing
    Metric("relay_published_total", "counter", "Launches handed to Kafka.", _SCHEDULER),
    Metric(
        "relay_outstanding",
        "gauge",
        "Messages handed to Kafka and not yet acknowledged.",
        _SCHEDULER,
    ),
    Metric(
        "oldest_due_seconds",
        "gauge",
        "How long the oldest due launch that may run waits to be published.",
        _SCHEDULER,
    ),
    Metric(
        "launches_queued",
        "gauge",
        "Launches in Kafka that no worker has claimed, of the partitions that this process owns.",
        _SCHEDULER,
        ("queue",),
    ),
    Metric(
        "messages_lost_total",
        "counter",
        "Queued launches published again after a long wait.",
        _SCHEDULER,
    ),
    Metric("claims_expired_total", "counter", "Claims whose worker was lost.", _SCHEDULER),
    # Work
    Metric("start_lag_seconds", "histogram", "From due to the first start.", _WORKER, (), LAG),
    Metric(
        "launches_total", "counter", "Launches that ended here, by state.", _WORKER, ("outcome",)
    ),
    Metric("run_seconds", "histogram", "How long a run took.", _WORKER, ("kind",), RUN),
    Metric("runs_active", "gauge", "Runs under way in this worker.", _WORKER),
    Metric("webhook_calls_open", "gauge", "Webhook calls that are open.", _WORKER),
    Metric(
        "webhook_circuits_open",
        "gauge",
        "Receivers that are left alone since they failed.",
        _WORKER,
    ),
    Metric(
        "webhook_circuits_opened_total", "counter", "How often a receiver began to be so.", _WORKER
    ),
    Metric("claims_total", "counter", "Messages answered at the claim.", _WORKER, ("outcome",)),
    Metric(
        "tenant_throttled_total",
        "counter",
        "Claims refused by a limit of a queue, a tenant or a concurrency key, or by a pause; slots"
        " not launched for a quota (`quota`), triggers (`launches`), jobs (`jobs`) and requests"
        " (`requests`) refused for one.",
        _ALL,
        ("reason",),
    ),
    Metric("claims_extended_total", "counter", "Claims extended for runs that go on.", _WORKER),
    Metric(
        "retries_total",
        "counter",
        "Failed attempts that will be tried again.",
        _WORKER,
        ("reason",),
    ),
    Metric(
        "stale_results_total",
        "counter",
        "Results whose claim was another's by then.",
        _WORKER,
    ),
    Metric(
        "runs_not_stopped_total",
        "counter",
        "Runs that go on long after their timeout: they are logged by name.",
        _WORKER,
        ("kind",),
    ),
    Metric(
        "messages_undecodable_total",
        "counter",
        "Kafka messages that could not be read.",
        _WORKER,
    ),
    Metric(
        "task_loop_lag_seconds",
        "gauge",
        "How late the event loop of tasks, or the whole process, was at most in the last minute.",
        _WORKER,
    ),
    Metric("task_runs_overdue", "gauge", "Tasks that go on past their time limit.", _WORKER),
    Metric("consumer_lag", "gauge", "Messages not yet read by this worker.", _WORKER, ("topic",)),
    Metric(
        "queue_workers",
        "gauge",
        "Workers heard of in the last 20 s that serve a queue and do not drain; NaN: not known.",
        _API,
        ("queue",),
        together="least",
    ),
    # The busiest tenants
    Metric(
        "tenant_launches_total",
        "counter",
        "Attempts that ended here, of the busiest tenants: `succeeded`, `retried`, `given_up`,"
        " `cancelled`.",
        _WORKER,
        ("tenant", "outcome"),
    ),
    Metric(
        "tenant_starts_total",
        "counter",
        "First starts here, of the busiest tenants.",
        _WORKER,
        ("tenant",),
    ),
    Metric(
        "tenant_start_lag_seconds_total",
        "counter",
        "What these first starts waited from due, together.",
        _WORKER,
        ("tenant",),
    ),
    Metric(
        "tenant_run_seconds_total",
        "counter",
        "Time of runs that ended here, of the busiest tenants.",
        _WORKER,
        ("tenant",),
    ),
    # Dead letters
    Metric(
        "dead_letters_total",
        "counter",
        "Launches given up, by why.",
        _SCHEDULER_WORKER,
        ("reason",),
    ),
    Metric(
        "dead_letters_waiting",
        "gauge",
        "Dead and abandoned launches, neither redriven nor purged, up to 100,000; told by the owner"
        " of partition 0, others show 0.",
        _SCHEDULER,
    ),
    Metric(
        "notices_total",
        "counter",
        "Deliveries of notices: `delivered`, `failed` (it is tried again), `given_up`.",
        _WORKER,
        ("outcome",),
    ),
    # History
    Metric(
        "history_ahead_days",
        "gauge",
        "Days after today for which the history has room already; NaN: not known.",
        _API,
    ),
    Metric(
        "history_late_days",
        "gauge",
        "Days of the history that should be gone and are still there; NaN: not known.",
        _API,
    ),
    # What ends by itself
    Metric(
        "api_keys_expiring",
        "gauge",
        "API keys used in the last 7 days that end within 7 days and were not replaced.",
        _SCHEDULER,
    ),
    Metric(
        "certificate_expires_timestamp_seconds",
        "gauge",
        "When a certificate that this process has read ends, in Unix time: of a chain the first to"
        " end, of several authorities the last; NaN: the file cannot be read.",
        _ALL,
        ("certificate",),
        together="least",
    ),
    # Every process
    Metric(
        "build_info",
        "gauge",
        "1, with the version and the service.",
        _ALL,
        ("version", "service"),
    ),
    Metric(
        "synchronous_standby",
        "gauge",
        "Whether commits wait for a standby (1) or not (0).",
        _SCHEDULER_WORKER,
    ),
    Metric("server_up", "gauge", "Whether a server answers (1) or not (0).", _ALL, ("server",)),
    Metric("loop_turns_total", "counter", "Turns of each loop.", _ALL, ("loop",)),
    Metric("loop_errors_total", "counter", "Turns that failed by a bug.", _ALL, ("loop",)),
    Metric("loop_turn_seconds", "histogram", "How long a turn took.", _ALL, ("loop",), SHORT),
    # The watchdog
    Metric(
        "watchdog_slots_missing",
        "gauge",
        "Slots that were due a while ago and are neither launched nor skipped, whoever should have"
        " done so; of 10,000 jobs at most.",
        _WATCHDOG,
    ),
    Metric(
        "watchdog_slots_late_seconds",
        "gauge",
        "How long ago the oldest of these slots was due; 0: there is none.",
        _WATCHDOG,
    ),
    Metric(
        "watchdog_jobs_wrong",
        "gauge",
        "Jobs with such slots (`missing`), that wait for a later instant than their next slot's or"
        " for none (`adrift`), whose plan cannot be read (`unreadable`).",
        _WATCHDOG,
        ("wrong",),
    ),
    Metric(
        "watchdog_found_total", "counter", "Jobs that were found to be so.", _WATCHDOG, ("wrong",)
    ),
    Metric("watchdog_checked_total", "counter", "Jobs that were looked at.", _WATCHDOG),
    Metric(
        "watchdog_last_look_seconds",
        "gauge",
        "How long ago the watchdog's last turn ended well.",
        _WATCHDOG,
    ),
    Metric(
        "watchdog_last_pass_seconds",
        "gauge",
        "How long ago it had looked at every job.",
        _WATCHDOG,
    ),
    Metric("watchdog_pass_seconds", "gauge", "How long its last pass took.", _WATCHDOG),
    Metric(
        "watchdog_jobs_silent",
        "gauge",
        "Jobs that have not succeeded for as long as their `expect_success_every` says.",
        _WATCHDOG,
    ),
    Metric("watchdog_silences_total", "counter", "Jobs that fell silent.", _WATCHDOG),
    Metric(
        "watchdog_alarms_total",
        "counter",
        "Deliveries to the operators' webhook: `delivered`, `failed` (it is tried again),"
        " `given_up`.",
        _WATCHDOG,
        ("outcome",),
    ),
    # The API
    Metric(
        "http_requests_total",
        "counter",
        "Requests answered.",
        _API,
        ("method", "route", "status"),
    ),
    Metric(
        "http_request_seconds", "histogram", "How long a request took.", _API, ("route",), SHORT
    ),
)

_KINDS: Final = "`webhook`, `kafka`, `command`, `task`, `noop`"
_BOUNDS: Final = {
    "slots_skipped_total.reason": Bound(10, "the reasons of skipped slots", tuple(SkipReason)),
    "tenant_throttled_total.reason": Bound(
        12,
        "the reasons above and those of a refused claim",
        (*sorted(THROTTLED), SkipReason.QUOTA.value, "launches", "jobs", "requests"),
    ),
    "retries_total.reason": Bound(60, "the outcomes of attempts; numbers and names are cut off"),
    "dead_letters_total.reason": Bound(10, "the reasons of dead letters", tuple(Reason)),
    "ownership_changes_total.change": Bound(2, "`gained`, `lost`", ("gained", "lost")),
    "notices_total.outcome": Bound(3, "`delivered`, `failed`, `given_up`"),
    "watchdog_alarms_total.outcome": Bound(3, "`delivered`, `failed`, `given_up`"),
    "wrong": Bound(3, "`missing`, `adrift`, `unreadable`"),
    "runs_not_stopped_total.kind": Bound(10, _KINDS, ("webhook", "kafka", "command", "task")),
    "launches_total.outcome": Bound(12, "the states of a launch"),
    "claims_total.outcome": Bound(20, "`granted`, and the reasons of a refused claim"),
    "tenant_launches_total.outcome": Bound(4, "`succeeded`, `retried`, `given_up`, `cancelled`"),
    "partition": Bound(1024, "the partitions of the installation, 64 as it comes"),
    "hour": Bound(24, "`00` to `23`"),
    "minute": Bound(12, "`00`, `05` to `55`"),
    "queue": Bound(200, "the queues, which operators make"),
    "topic": Bound(800, "the topics of the queues that this worker serves, four each"),
    "tenant": Bound(TOP_TENANTS, "the ids of the tenants busiest in this process"),
    "kind": Bound(10, _KINDS),
    "loop": Bound(20, "the loops of the process"),
    "server": Bound(3, "`postgres`, `etcd`, `kafka`"),
    "certificate": Bound(10, "the settings that name certificates"),
    "version": Bound(1, "of this process"),
    "service": Bound(1, "of this process"),
    "method": Bound(9, "HTTP's"),
    "route": Bound(150, "the paths of the OpenAPI document; `none` for any other"),
    "status": Bound(60, "HTTP's"),
}


def bound_of(metric: Metric, label: str) -> Bound:
    """The bound of a label of a metric.

    Raises:
        KeyError: it has none, which is a mistake in the table.
    """
    return _BOUNDS.get(f"{metric.name}.{label}") or _BOUNDS[label]
