"""The dashboards of workers, tenants, the API, and what is due."""

from __future__ import annotations

from typing import Final

from docs.panels import RATE, Dashboard, Panel, Variable, quantiles, rate

WORK: Final = Dashboard(
    "tickrail-work",
    "Tickrail: workers and queues",
    "What is queued, what runs, what fails, and whether there are enough workers.",
    (
        Panel(
            1, "Workers of each queue", "timeseries",
            {"{{queue}}": "max by (queue) (tickrail_queue_workers)"},
            "Heard of in the last 20 s and not draining.", alerts=("TickrailQueueUnserved",),
        ),
        Panel(
            2, "Queued", "timeseries",
            {"{{queue}}": "sum by (queue) (tickrail_launches_queued)"},
            "In Kafka and claimed by nobody. As much as workers start in a quarter of a second, "
            "and TICKRAIL_RELAY_OUTSTANDING of a class at most.",
        ),
        Panel(
            3, "Messages not read", "timeseries",
            {"{{topic}}": "sum by (topic) (tickrail_consumer_lag)"},
            "Behind the log's end, by topic.", alerts=("TickrailNotRead",), bad=1000,
        ),
        Panel(
            4, "Claims", "timeseries", {"{{outcome}}": rate("claims_total", "outcome")},
            "`granted` starts; the rest are messages that start nothing, which is no fault.", "ops",
        ),
        Panel(
            5, "Runs under way", "timeseries", {"{{instance}}": "tickrail_runs_active"},
            "Against TICKRAIL_WORKER_CONCURRENCY: where they meet, more workers help.",
            stacked=True,
        ),
        Panel(
            6, "Time of runs", "timeseries", quantiles("run_seconds", "kind"),
            "By what is called.", "s",
        ),
        Panel(
            7, "Claims extended, expired", "timeseries",
            {
                "extended": rate("claims_extended_total"),
                "expired": rate("claims_expired_total"),
                "results too late": rate("stale_results_total"),
            },
            "An expired claim: its worker was lost, or stood still for the visibility timeout.",
            "ops", alerts=("TickrailClaimsExpiring",),
        ),
        Panel(
            8, "Messages lost or unreadable", "timeseries",
            {
                "published again": rate("messages_lost_total"),
                "unreadable": rate("messages_undecodable_total"),
            },
            "Queued for five minutes, then published again: workers are slow, or Kafka lost data.",
            "ops", alerts=("TickrailMessagesLost",),
        ),
        Panel(
            9, "Held back by limits", "timeseries",
            {"{{reason}}": rate("tenant_throttled_total", "reason")},
            "Limits, quotas and pauses at work.", "ops", stacked=True,
        ),
        Panel(
            10, "Webhooks", "timeseries",
            {
                "calls open": "sum(tickrail_webhook_calls_open)",
                "receivers left alone": "sum(tickrail_webhook_circuits_open)",
            },
            "A receiver that fails again and again is left alone for a while.",
        ),
        Panel(
            11, "Tasks that hold up", "timeseries",
            {
                "late, {{instance}}": "tickrail_task_loop_lag_seconds",
                "overdue, {{instance}}": "tickrail_task_runs_overdue",
            },
            "A task that blocks its loop or the interpreter holds up its worker.",
            "s", alerts=("TickrailTaskLoopLag",), bad=5,
        ),
        Panel(
            12, "Runs that do not stop", "timeseries",
            {
                "{{kind}}, {{instance}}": "sum by (kind, instance) "
                "(increase(tickrail_runs_not_stopped_total[10m]))"
            },
            "They keep their claims and their places until they end.",
            alerts=("TickrailRunsNotStopped",), bad=1,
        ),
        Panel(
            13, "Processor of workers", "timeseries",
            {
                "{{instance}}": f"rate(process_cpu_seconds_total{RATE}) "
                'and on (instance) tickrail_build_info{service="worker"}'
            },
            "Cores. One process of Python uses little more than one.", "short",
        ),
        Panel(
            14, "Memory of workers", "timeseries",
            {
                "{{instance}}": "process_resident_memory_bytes "
                'and on (instance) tickrail_build_info{service="worker"}'
            },
            "Grows with the runs under way.", "bytes",
        ),
    ),
)  # fmt: skip

TENANT: Final = Dashboard(
    "tickrail-tenant",
    "Tickrail: one tenant",
    "The busiest tenants by id (`tickrail tenants list`). Each process tells its 20 busiest apart;"
    " the rest is `other`.",
    (
        Panel(
            1, "Ends", "timeseries",
            {"{{outcome}}": rate("tenant_launches_total", "outcome", where='{tenant=~"$tenant"}')},
            "Attempts that ended: succeeded, tried again, given up, cancelled.", "ops",
            stacked=True,
        ),
        Panel(
            2, "First starts", "timeseries",
            {"{{tenant}}": rate("tenant_starts_total", "tenant", where='{tenant=~"$tenant"}')},
            "Launches that began, a second.", "ops",
        ),
        Panel(
            3, "Mean start lag", "timeseries",
            {
                "{{tenant}}": rate(
                    "tenant_start_lag_seconds_total", "tenant", where='{tenant=~"$tenant"}'
                )
                + " / "
                + rate("tenant_starts_total", "tenant", where='{tenant=~"$tenant"}')
            },
            "From due to the first start. Higher than others': its limits, or its own crowd.", "s",
        ),
        Panel(
            4, "Failures", "timeseries",
            {
                "{{tenant}}": rate(
                    "tenant_launches_total", "tenant",
                    where='{tenant=~"$tenant",outcome=~"retried|given_up"}',
                )
                + " / "
                + rate("tenant_launches_total", "tenant", where='{tenant=~"$tenant"}')
            },
            "The part of the attempts that did not succeed.", "percentunit",
        ),
        Panel(
            5, "Runs at once", "timeseries",
            {"{{tenant}}": rate("tenant_run_seconds_total", "tenant", where='{tenant=~"$tenant"}')},
            "Seconds of runs in a second: how many go on at once, in the mean.", "short",
        ),
        Panel(
            6, "Who is busy", "bargauge",
            {"{{tenant}}": "topk(20, sum by (tenant) (rate(tickrail_tenant_starts_total[10m])))"},
            "First starts a second, of the last ten minutes.", "ops",
        ),
    ),
    (Variable("tenant", "Tenant", "tickrail_tenant_starts_total"),),
)  # fmt: skip

API: Final = Dashboard(
    "tickrail-api",
    "Tickrail: API",
    "Requests, errors, times, and what ends by itself.",
    (
        Panel(
            1, "Requests", "timeseries",
            {"{{status}}": rate("http_requests_total", "status")},
            "By status.", "reqps", stacked=True,
        ),
        Panel(
            2, "Errors of the server", "timeseries",
            {"5xx": "tickrail:http_errors:ratio_rate5m"},
            "The part of the requests answered with 5xx.", "percentunit",
            alerts=("TickrailApiErrors",), bad=0.01,
        ),
        Panel(
            3, "Time of requests", "timeseries",
            {**quantiles("http_request_seconds"), "p99": "tickrail:http_request_seconds:p99_5m"},
            "Batches left aside in the p99.", "s", alerts=("TickrailApiSlow",), bad=1,
        ),
        Panel(
            4, "Slowest paths, p99", "timeseries",
            {
                "{{route}}": "topk(10, histogram_quantile(0.99, sum by (route, le) "
                f"(rate(tickrail_http_request_seconds_bucket{RATE}))))"
            },
            "The ten slowest.", "s",
        ),
        Panel(
            5, "Busiest paths", "timeseries",
            {"{{method}} {{route}}": f"topk(10, {rate('http_requests_total', 'method, route')})"},
            "The ten busiest.", "reqps",
        ),
        Panel(
            6, "Refused for a quota", "timeseries",
            {
                "{{reason}}": rate(
                    "tenant_throttled_total", "reason", where='{reason=~"requests|jobs|launches"}'
                )
            },
            "Requests, jobs and triggers beyond a tenant's quota.", "ops",
        ),
        Panel(
            7, "Certificates", "timeseries",
            {
                "{{certificate}}": "min by (certificate) "
                "(tickrail_certificate_expires_timestamp_seconds) - time()"
            },
            "Until the first process's certificate ends.", "s",
            alerts=(
                "TickrailCertificateExpires", "TickrailCertificateExpiresSoon",
                "TickrailCertificateUnreadable",
            ),
            bad=1_209_600, low=True,
        ),
        Panel(
            8, "Keys that end within a week", "stat", {"keys": "max(tickrail_api_keys_expiring)"},
            "Used in the last week, and nobody replaced them.",
            alerts=("TickrailApiKeyExpires",), bad=1,
        ),
    ),
)  # fmt: skip

DUE: Final = Dashboard(
    "tickrail-due",
    "Tickrail: due in the next 24 hours",
    "When the crowds come. A forecast from the schedules, never older than ten minutes.",
    (
        Panel(
            1, "Slots in each five minutes (UTC)", "matrix",
            {"": "sum by (hour, minute) (tickrail_slots_forecast)"},
            "Rows are hours, columns are minutes; the hours before the present one are tomorrow's.",
            width=24, height=16,
        ),
        Panel(
            2, "Slots in the next 24 hours", "stat", {"slots": "sum(tickrail_slots_forecast)"},
            "All of them.", width=6, height=6,
        ),
        Panel(
            3, "The largest five minutes, slots a second", "stat",
            {"a second": "max(sum by (hour, minute) (tickrail_slots_forecast)) / 300"},
            "In the mean of those five minutes; crowds come at their first second.",
            "ops", 6, 6,
        ),
        Panel(
            4, "By the hour", "bargauge", {"{{hour}}": "sum by (hour) (tickrail_slots_forecast)"},
            "Slots expected in each hour of the day.", width=12, height=12,
        ),
        Panel(
            5, "Lag of starts", "heatmap",
            {"{{le}}": f"sum by (le) (rate(tickrail_start_lag_seconds_bucket{RATE}))"},
            "What the crowds that came did to the time from due to start.",
            "s", width=12, height=12,
        ),
    ),
    since="now-24h",
)  # fmt: skip
