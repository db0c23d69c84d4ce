"""The dashboards: what they show and by which queries. `tables.py` writes their JSON.

Here those of the installation; `work_dashboards.py` has those of its work and its users.
"""

from __future__ import annotations

from typing import Final

from docs.panels import RATE, Dashboard, Panel, quantiles, rate
from docs.work_dashboards import API, DUE, TENANT, WORK

OVERVIEW: Final = Dashboard(
    "tickrail-overview",
    "Tickrail: overview",
    "Is everything that is due being launched, now?",
    (
        Panel(
            1, "Due and nobody launches it", "stat",
            {"waits": "max(tickrail_jobs_overdue_seconds)"},
            "How long the job that is due longest waits for its record, whoever owns it. Normal: "
            "below 1 s.",
            "s", 4, 5, ("TickrailJobsOverdue",), 60,
        ),
        Panel(
            2, "Due and not published", "stat", {"waits": "max(tickrail_oldest_due_seconds)"},
            "How long the oldest launch that may run waits for Kafka. Grows while Kafka is away or "
            "workers do not take what is queued.",
            "s", 4, 5, ("TickrailNotPublished", "TickrailNothingPublished"), 60,
        ),
        Panel(
            3, "Partitions without an owner", "stat",
            {"partitions": "max(tickrail_partitions_unowned)"},
            "More than 0 for longer than a lease (10 s): nobody takes them.",
            "short", 4, 5, ("TickrailPartitionsUnowned", "TickrailNoScheduler"), 1,
        ),
        Panel(
            4, "Start lag, p99", "stat",
            {"p99": "tickrail:start_lag_seconds:p99_5m"},
            "From due to the first start, of the last five minutes.",
            "s", 4, 5, (), 5,
        ),
        Panel(
            5, "Dead letters waiting", "stat", {"waiting": "max(tickrail_dead_letters_waiting)"},
            "Launches that were given up and neither redriven nor purged.",
            "short", 4, 5, ("TickrailDeadLetters", "TickrailDeadLettersGrowing"), 1,
        ),
        Panel(
            6, "Started within 5 s", "stat",
            {"of one day": "1 - tickrail:start_slo_errors:ratio_rate1d"},
            "Of the launches that started in the last day. The objective is 99.9 %.",
            "percentunit", 4, 5, ("TickrailStartSLOFastBurn", "TickrailStartSLOSlowBurn"), 0.999,
            low=True,
        ),
        Panel(
            7, "Launches a second", "timeseries",
            {
                "records": rate("schedule_lag_seconds_count"),
                "published": rate("relay_published_total"),
                "started": rate("start_lag_seconds_count"),
                "{{outcome}}": rate("launches_total", "outcome"),
            },
            "What goes through each step. Where two lines part, launches wait between them.",
            "ops", alerts=("TickrailNothingStarts",),
        ),
        Panel(
            8, "Lag", "timeseries",
            {
                **{f"record {n}": q for n, q in quantiles("schedule_lag_seconds").items()},
                **{f"start {n}": q for n, q in quantiles("start_lag_seconds").items()},
            },
            "From due to the record, and from due to the first start.",
            "s", alerts=("TickrailScheduleLag",),
        ),
        Panel(
            9, "Failures", "timeseries",
            {
                "again: {{reason}}": rate("retries_total", "reason"),
                "given up: {{reason}}": rate("dead_letters_total", "reason"),
            },
            "Attempts that failed and are tried again, and launches that were given up.",
            "ops",
        ),
        Panel(
            10, "Slots left out", "timeseries",
            {"{{reason}}": rate("slots_skipped_total", "reason")},
            "Due slots that were recorded as skipped. `misfire`: too late; `overlap`: the launch "
            "before is still open.",
            "ops", stacked=True,
        ),
        Panel(
            11, "Processes", "timeseries",
            {"{{service}}": "count by (service) (tickrail_build_info)"},
            "Those that Prometheus reaches.",
            alerts=(
                "TickrailSchedulerAbsent", "TickrailWorkerAbsent", "TickrailApiAbsent",
                "TickrailProcessRestarts",
            ),
        ),
        Panel(
            12, "Servers", "timeseries",
            {"{{server}}": "min by (server) (tickrail_server_up)"},
            "1 where every process reaches it.",
            alerts=("TickrailServerAway",), bad=1, low=True,
        ),
        Panel(
            13, "Records within a minute", "timeseries",
            {
                "late, of one hour": "tickrail:record_slo_errors:ratio_rate1h",
                "late, of six hours": "tickrail:record_slo_errors:ratio_rate6h",
            },
            "The part of the slots whose record came later than a minute, or that were misfires. "
            "The objective allows 0.01 %.",
            "percentunit", alerts=("TickrailRecordSLOFastBurn", "TickrailRecordSLOSlowBurn"),
            bad=0.0001,
        ),
        Panel(
            14, "History", "timeseries",
            {
                "days made ahead": "min(tickrail_history_ahead_days)",
                "days that should be gone": "max(tickrail_history_late_days)",
            },
            "Three days are made ahead; days older than TICKRAIL_HISTORY_DAYS go when nothing in "
            "them is open.",
            alerts=("TickrailHistoryNotAhead", "TickrailRetentionLate"),
        ),
        Panel(
            15, "Notices", "timeseries", {"{{outcome}}": rate("notices_total", "outcome")},
            "Who wants to be told of failures: delivered, to be tried again, given up.",
            "ops", alerts=("TickrailNoticesGivenUp",),
        ),
        Panel(
            16, "What the watchdog misses", "timeseries",
            {
                "slots": "max(tickrail_watchdog_slots_missing)",
                "jobs, {{wrong}}": "max by (wrong) (tickrail_watchdog_jobs_wrong)",
            },
            "It works out by itself which slots were due, whatever the schedulers say.",
            alerts=("TickrailSlotsMissing", "TickrailJobsWrong"), bad=1,
        ),
        Panel(
            17, "Since the watchdog looked", "timeseries",
            {
                "a turn": "max(tickrail_watchdog_last_look_seconds)",
                "all jobs": "max(tickrail_watchdog_last_pass_seconds)",
            },
            "Grows where it does not reach PostgreSQL.",
            "s", alerts=("TickrailWatchdogAbsent", "TickrailWatchdogBlind"), bad=120,
        ),
        Panel(
            18, "Silent jobs, and alarms", "timeseries",
            {
                "silent": "max(tickrail_watchdog_jobs_silent)",
                "alarms {{outcome}}": "sum by (outcome) "
                "(increase(tickrail_watchdog_alarms_total[1h]))",
            },
            "Jobs without a success for as long as their `expect_success_every` says; calls of the "
            "operators' webhook in an hour.",
            alerts=(
                "TickrailJobsSilent", "TickrailAlarmsNotDelivered", "TickrailAlarmsGivenUp",
            ),
        ),
    ),
)  # fmt: skip

OWNERSHIP: Final = Dashboard(
    "tickrail-ownership",
    "Tickrail: partitions and ownership",
    "Who owns what, and how safely.",
    (
        Panel(
            1, "Partitions owned", "timeseries",
            {"{{instance}}": "tickrail_partitions_owned"},
            "Equal shares, by the weights of the schedulers.", stacked=True,
        ),
        Panel(
            2, "Without an owner, and members", "timeseries",
            {
                "without an owner": "max(tickrail_partitions_unowned)",
                "members": "max(tickrail_members)",
            },
            "A dead scheduler's partitions are without an owner until its lease ends.",
        ),
        Panel(
            3, "Lease remaining", "timeseries",
            {"{{instance}}": "tickrail_lease_remaining_seconds"},
            "What is left of the trust window. Between 6 and 9 s with a lease of 10 s; at 0 a "
            "scheduler drops what it owns.",
            "s", alerts=("TickrailLeaseLow", "TickrailLeaseNearlyLost"), bad=3, low=True,
        ),
        Panel(
            4, "Leases nearly lost, and lost", "timeseries",
            {
                "nearly: {{instance}}": "increase(tickrail_lease_nearly_lost_total[10m])",
                "lost: {{instance}}": "increase(tickrail_leases_lost_total[10m])",
            },
            "In ten minutes. Now and then is an overloaded machine; again and again is etcd.",
        ),
        Panel(
            5, "Changes of ownership", "timeseries",
            {"{{change}}, {{instance}}": rate("ownership_changes_total", "change, instance")},
            "Partitions that a scheduler gained and lost, a second.", "ops",
        ),
        Panel(
            6, "Fenced writes", "timeseries",
            {"{{instance}}": "increase(tickrail_fenced_writes_total[10m])"},
            "Writes that PostgreSQL refused since another owns the partition; none landed.",
            alerts=("TickrailFencedWrites",), bad=1,
        ),
        Panel(
            7, "Clock skew", "timeseries", {"{{instance}}": "tickrail_clock_skew_seconds"},
            "This machine's clock against PostgreSQL's. Beyond 1 s a scheduler owns nothing.",
            "s", alerts=("TickrailClockSkew",), bad=0.5,
        ),
        Panel(
            8, "Turns of the owner's loops, p99", "timeseries",
            {
                "{{loop}}": "histogram_quantile(0.99, sum by (loop, le) "
                f'(rate(tickrail_loop_turn_seconds_bucket{{loop=~"owner|ownership|renewal"}}{RATE})))'
            },
            "A turn that takes seconds keeps slots and renewals waiting.", "s",
        ),
        Panel(
            9, "Loops that failed", "timeseries",
            {"{{loop}}, {{instance}}": rate("loop_errors_total", "loop, instance")},
            "Turns that ended by a mistake in the program; outages of servers do not count.",
            "ops", alerts=("TickrailLoopErrors",),
        ),
        Panel(
            10, "Jobs that cannot be planned", "timeseries",
            {"tries": rate("jobs_unplannable_total")},
            "Each is tried again once a minute.", "ops", alerts=("TickrailJobsUnplannable",),
        ),
        Panel(
            11, "Owner of each partition", "table",
            {"": "max by (partition, instance) (tickrail_ownership_epoch) > 0"},
            "The epoch is the fencing token: the higher one is the later owner's.", width=24,
        ),
    ),
)  # fmt: skip

DASHBOARDS: Final = (OVERVIEW, OWNERSHIP, WORK, TENANT, API, DUE)
