"""The tables of work, as statements name them: jobs and their launches, queues, limits, workers.

The migrations are what makes the schema; a drift test holds this file to it. Row security adds the
tenant to every statement: nothing here or beside it filters by tenant.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    DOUBLE_PRECISION,
    REAL,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import INTERVAL, JSONB

from tickrail.store.schema import INSTANT, NAME, metadata
from tickrail.store.tenant_tables import tenants

attempts = Table(
    "attempts",
    metadata,
    Column("launch_id", Uuid, primary_key=True),
    Column("scheduled_at", INSTANT, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("attempt", Integer, primary_key=True),
    Column("claim", BigInteger),
    Column("worker", Text),
    Column("started_at", INSTANT),
    Column("finished_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("outcome", Text, nullable=False),
    Column("certain", Boolean, nullable=False),
    Column("code", Integer),
    Column("message", Text, nullable=False, server_default=text("''::text")),
    Column("body", Text, nullable=False, server_default=text("''::text")),
    Column("stale_result", JSONB),
)
installation = Table(
    "installation",
    metadata,
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("partitions", Integer, nullable=False),
    Column("kafka_partitions", Integer, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("0")),
    Column("tzdata", Text, nullable=False, server_default=text("''::text")),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("compatible", Text, nullable=False, server_default=text("'0001_pre'::text")),
)
launches = Table(
    "launches",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("scheduled_at", INSTANT, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("job_id", Uuid, nullable=False),
    Column("job_version", Integer, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("queue", NAME, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("origin", NAME, nullable=False),
    Column("state", NAME, nullable=False),
    Column("phase", SmallInteger, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False),
    Column("rerun", Boolean, nullable=False),
    Column("visibility", REAL, nullable=False),
    Column("due_at", INSTANT, nullable=False),
    Column("start_before", INSTANT),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("queued_at", INSTANT),
    Column("publications", Integer, nullable=False, server_default=text("0")),
    Column("claim", BigInteger),
    Column("claim_expires_at", INSTANT),
    Column("worker", Text),
    Column("started_at", INSTANT),
    Column("finished_at", INSTANT),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("redrive_count", Integer, nullable=False, server_default=text("0")),
    Column("dlq_owed", Boolean, nullable=False, server_default=text("false")),
    Column("epoch", BigInteger, nullable=False),
    Column("payload", JSONB),
    Column("result", JSONB),
    Column("concurrency_key", NAME),
    Column("concurrency_limit", Integer),
    Column("progress", JSONB),
    Column("dead_at", INSTANT),
    Column("trace", NAME),
)
Index(
    "launches_dead",
    launches.c.tenant_id,
    launches.c.dead_at,
    launches.c.id,
    postgresql_where=text("(dead_at IS NOT NULL)"),
)
Index(
    "launches_deadline",
    launches.c.partition,
    launches.c.start_before,
    postgresql_where=text("((phase = ANY (ARRAY[1, 2])) AND (start_before IS NOT NULL))"),
)
Index(
    "launches_due",
    launches.c.partition,
    launches.c.queue,
    launches.c.priority,
    launches.c.tenant_id,
    launches.c.due_at,
    postgresql_where=text("(phase = 1)"),
)
Index("launches_flight", launches.c.partition, postgresql_where=text("(phase = 2)"))
Index("launches_held", launches.c.partition, postgresql_where=text("(phase = 0)"))
Index("launches_job", launches.c.job_id, launches.c.scheduled_at)
Index(
    "launches_open",
    launches.c.job_id,
    launches.c.scheduled_at,
    postgresql_where=text("(phase < 3)"),
)
Index("launches_owed", launches.c.partition, postgresql_where=text("dlq_owed"))
Index("launches_tenant", launches.c.tenant_id, launches.c.scheduled_at, launches.c.id)
launch_logs = Table(
    "launch_logs",
    metadata,
    Column("launch_id", Uuid, primary_key=True),
    Column("scheduled_at", INSTANT, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("attempt", Integer, primary_key=True),
    Column("body", Text, nullable=False, server_default=text("''::text")),
    Column("size", BigInteger, nullable=False, server_default=text("0")),
    Column("ended", Boolean, nullable=False, server_default=text("false")),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
)
limits = Table(
    "limits",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("scope", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("paused_reason", Text, nullable=False, server_default=text("''::text")),
    Column("max_running", Integer),
    Column("rate_count", Integer),
    Column("rate_seconds", REAL),
    Column("tokens", DOUBLE_PRECISION, nullable=False, server_default=text("0")),
    Column(
        "filled_at",
        INSTANT,
        nullable=False,
        server_default=text("'-infinity'::timestamp with time zone"),
    ),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
)
holds = Table(
    "holds",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("scope", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("launch_id", Uuid, primary_key=True),
    Column("scheduled_at", INSTANT, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("claim", BigInteger),
    Column("reason", Text),
    Column("attempt", Integer),
    Column("due_at", INSTANT),
    Column("asked_at", INSTANT, nullable=False, server_default=text("clock_timestamp()")),
)
Index(
    "holds_waiting",
    holds.c.tenant_id,
    holds.c.scope,
    holds.c.name,
    holds.c.priority,
    holds.c.asked_at,
    postgresql_where=text("(claim IS NULL)"),
)
Index(
    "holds_owed",
    holds.c.tenant_id,
    holds.c.scope,
    holds.c.name,
    postgresql_where=text("(reason = 'rate'::text)"),
)
Index(
    "holds_placed",
    holds.c.tenant_id,
    holds.c.scope,
    holds.c.name,
    postgresql_where=text("(claim IS NOT NULL)"),
)
workers = Table(
    "workers",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("queues", ARRAY(Text), nullable=False),
    Column("kinds", ARRAY(Text), nullable=False),
    Column("tasks", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    Column("version", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("running", Integer, nullable=False, server_default=text("0")),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("started_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("seen_at", INSTANT, nullable=False, server_default=text("now()")),
)
undecodable = Table(
    "undecodable",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("queue", NAME, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("size", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("at", INSTANT, nullable=False, server_default=text("now()")),
)
Index("undecodable_at", undecodable.c.at, undecodable.c.id)
partitions = Table(
    "partitions",
    metadata,
    Column("partition", SmallInteger, primary_key=True),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", Text, nullable=False, server_default=text("''::text")),
    Column("taken_at", INSTANT),
    Column("tzdata", Text, nullable=False, server_default=text("''::text")),
)
queues = Table(
    "queues",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("kinds", ARRAY(Text), nullable=False),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("paused_reason", Text, nullable=False, server_default=text("''::text")),
)
skips = Table(
    "skips",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("scheduled_at", INSTANT, primary_key=True),
    Column("last_at", INSTANT, nullable=False),
    Column("tenant_id", Uuid, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("reason", Text, primary_key=True),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
)
Index("skips_job", skips.c.job_id, skips.c.scheduled_at)
calendars = Table(
    "calendars",
    metadata,
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("document", JSONB, nullable=False),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
)
jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("name", NAME, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("state", Text, nullable=False),
    Column("next_run_at", INSTANT),
    Column("last_slot_at", INSTANT),
    Column("launched", BigInteger, nullable=False, server_default=text("0")),
    Column("plan", JSONB, nullable=False),
    Column("paused", JSONB),
    Column("resume_at", INSTANT),
    Column("error", Text),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("deleted_at", INSTANT),
    Column("skip_next", Integer, nullable=False, server_default=text("0")),
    Column("catch_up", JSONB),
    Column("awaits", Boolean, nullable=False, server_default=text("false")),
    Column("failures_from", INSTANT),
    Column("expect_success_every", INTERVAL),
    Column("success_due_at", INSTANT),
    Column("silent_since", INSTANT),
)
Index("jobs_awaiting", jobs.c.partition, postgresql_where=text("awaits"))
_DELETED = text("(state = 'deleted'::text)")
Index("jobs_deleted", jobs.c.deleted_at, jobs.c.id, postgresql_where=_DELETED)
Index("jobs_deleted_name", jobs.c.tenant_id, jobs.c.name, jobs.c.id, postgresql_where=_DELETED)
Index(
    "jobs_due",
    jobs.c.partition,
    jobs.c.next_run_at,
    jobs.c.tenant_id,
    postgresql_where=text("((state = 'active'::text) AND (next_run_at IS NOT NULL))"),
)
Index(
    "jobs_live_name",
    jobs.c.tenant_id,
    jobs.c.name,
    unique=True,
    postgresql_where=text("(state <> 'deleted'::text)"),
)
Index(
    "jobs_resume",
    jobs.c.partition,
    jobs.c.resume_at,
    postgresql_where=text("(resume_at IS NOT NULL)"),
)
Index(
    "jobs_success_due",
    jobs.c.success_due_at,
    postgresql_where=text("(success_due_at IS NOT NULL)"),
)
Index("jobs_tenant", jobs.c.tenant_id, jobs.c.created_at, jobs.c.id)
operations = Table(
    "operations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("request", JSONB, nullable=False),
    Column("position", JSONB),
    Column("total", BigInteger, nullable=False, server_default=text("0")),
    Column("done", BigInteger, nullable=False, server_default=text("0")),
    Column("changed", BigInteger, nullable=False, server_default=text("0")),
    Column("failed", BigInteger, nullable=False, server_default=text("0")),
    Column("errors", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("created_by", Text, nullable=False, server_default=text("''::text")),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("finished_at", INSTANT),
    Column("held_until", INSTANT),
)
Index(
    "operations_running",
    operations.c.created_at,
    postgresql_where=text("(state = 'running'::text)"),
)
Index(
    "operations_ended",
    operations.c.finished_at,
    operations.c.id,
    postgresql_where=text("(finished_at IS NOT NULL)"),
)
Index("operations_tenant", operations.c.tenant_id, operations.c.created_at, operations.c.id)
backfills = Table(
    "backfills",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("job_id", Uuid, ForeignKey("jobs.id"), nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("from_at", INSTANT, nullable=False),
    Column("until_at", INSTANT, nullable=False),
    Column("newest_first", Boolean, nullable=False, server_default=text("false")),
    Column("existing", Text, nullable=False, server_default=text("'leave'::text")),
    Column("max_count", Integer),
    Column("max_open", Integer, nullable=False),
    Column("per_minute", Integer),
    Column("payload", JSONB),
    Column("has_payload", Boolean, nullable=False, server_default=text("false")),
    Column("cursor_at", INSTANT),
    Column("next_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("total", BigInteger, nullable=False),
    Column("launched", BigInteger, nullable=False, server_default=text("0")),
    Column("left_alone", BigInteger, nullable=False, server_default=text("0")),
    Column("reason", Text, nullable=False, server_default=text("''::text")),
    Column("created_by", Text, nullable=False, server_default=text("''::text")),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("finished_at", INSTANT),
)
Index(
    "backfills_ended",
    backfills.c.finished_at,
    backfills.c.id,
    postgresql_where=text("(finished_at IS NOT NULL)"),
)
Index("backfills_job", backfills.c.job_id, backfills.c.id)
Index(
    "backfills_running",
    backfills.c.partition,
    backfills.c.next_at,
    postgresql_where=text("(state = 'running'::text)"),
)
job_calendars = Table(
    "job_calendars",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("calendar", NAME, primary_key=True),
)
Index(
    "job_calendars_find",
    job_calendars.c.tenant_id,
    job_calendars.c.calendar,
    job_calendars.c.job_id,
)
job_tags = Table(
    "job_tags",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("key", NAME, primary_key=True),
    Column("value", NAME, nullable=False),
)
Index("job_tags_find", job_tags.c.tenant_id, job_tags.c.key, job_tags.c.value, job_tags.c.job_id)
job_versions = Table(
    "job_versions",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("definition", JSONB, nullable=False),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("created_by", Text, nullable=False, server_default=text("''::text")),
)
tzdata_changes = Table(
    "tzdata_changes",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("changed_at", INSTANT, primary_key=True, server_default=text("now()")),
    Column("from_version", Text, nullable=False),
    Column("to_version", Text, nullable=False),
    Column("before_at", INSTANT),
    Column("after_at", INSTANT),
)
Index("tzdata_changes_all", tzdata_changes.c.changed_at, tzdata_changes.c.job_id)
Index(
    "tzdata_changes_tenant",
    tzdata_changes.c.tenant_id,
    tzdata_changes.c.changed_at,
    tzdata_changes.c.job_id,
)
notices = Table(
    "notices",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), nullable=False),
    Column("kind", NAME, nullable=False),
    Column("about", NAME, nullable=False),
    Column("channel", NAME, nullable=False),
    Column("said", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    Column("suppressed", Integer, nullable=False, server_default=text("0")),
    Column("minute", INSTANT, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'pending'::text")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("created_at", INSTANT, nullable=False, server_default=text("clock_timestamp()")),
    Column("due_at", INSTANT, nullable=False, server_default=text("clock_timestamp()")),
    Column("ended_at", INSTANT),
    Column("error", Text, nullable=False, server_default=text("''::text")),
)
_NOTICE = (notices.c.tenant_id, notices.c.about, notices.c.channel, notices.c.minute)
Index("notices_age", notices.c.created_at)
Index(
    "notices_due",
    notices.c.tenant_id,
    notices.c.due_at,
    postgresql_where=text("(state = 'pending'::text)"),
)
Index("notices_minute", *_NOTICE)
Index("notices_summary", *_NOTICE, unique=True, postgresql_where=text("(suppressed > 0)"))
