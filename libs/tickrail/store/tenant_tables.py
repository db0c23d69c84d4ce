"""The tables of tenants and of who may ask for them: keys, secrets, kept answers, the audit log.

As in `tables`: the migrations make the schema, row security adds the tenant to every statement.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    column,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from tickrail.store.schema import INSTANT, NAME, metadata

tenants = Table(
    "tenants",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'active'::text")),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("weight", SmallInteger, nullable=False, server_default=text("1")),
    Column("egress", JSONB),
    Column("kafka_topics", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    Column("state_reason", Text, nullable=False, server_default=text("''::text")),
    Column("state_at", INSTANT),
    Column("resumed_at", INSTANT),
    UniqueConstraint("name", name="tenants_name_key"),
)
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id)),
    Column("name", Text, nullable=False, server_default=text("''::text")),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("expires_at", INSTANT),
    Column("revoked_at", INSTANT),
    Column("last_used_at", INSTANT),
    Column("description", Text, nullable=False, server_default=text("''::text")),
    Column("requests_per_second", Integer),
    Column("created_by", Text, nullable=False, server_default=text("''::text")),
    Column("replaced_by", NAME),
)
Index("api_keys_tenant", api_keys.c.tenant_id, api_keys.c.id)
Index(
    "api_keys_ended",
    text("LEAST(revoked_at, expires_at)"),
    api_keys.c.id,
    postgresql_where=text("(LEAST(revoked_at, expires_at) IS NOT NULL)"),
)
Index("api_keys_made", api_keys.c.tenant_id, api_keys.c.created_at, api_keys.c.id)
audit_log = Table(
    "audit_log",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id)),
    Column("at", INSTANT, nullable=False, server_default=text("now()")),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("before", JSONB),
    Column("after", JSONB),
    Column("request_id", Text, nullable=False, server_default=text("''::text")),
    Column("address", Text, nullable=False, server_default=text("''::text")),
)
Index("audit_log_tenant", audit_log.c.tenant_id, audit_log.c.at, audit_log.c.id)
for _column in (audit_log.c.subject, audit_log.c.actor, audit_log.c.action):
    Index(
        f"audit_log_{_column.name}",
        audit_log.c.tenant_id,
        _column,
        audit_log.c.at,
        audit_log.c.id,
    )
Index(
    "audit_log_request",
    audit_log.c.tenant_id,
    audit_log.c.request_id,
    audit_log.c.at,
    audit_log.c.id,
)
Index(
    "audit_log_installation",
    audit_log.c.at,
    audit_log.c.id,
    postgresql_where=text("(tenant_id IS NULL)"),
)
installation_audit = table(
    "installation_audit",
    *(column(c.name, c.type) for c in audit_log.c if c.name != "tenant_id"),
)
"""A view: the entries of no tenant, for operators."""
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), primary_key=True),
    Column("key", NAME, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("status", Integer),
    Column("headers", JSONB),
    Column("body", LargeBinary),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
    Column("locked_until", INSTANT),
)
Index("idempotency_keys_age", idempotency_keys.c.created_at)
operator_answers = Table(
    "operator_answers",
    metadata,
    Column("key", NAME, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JSONB, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", INSTANT, nullable=False, server_default=text("now()")),
)
Index("operator_answers_age", operator_answers.c.created_at)
secrets = Table(
    "secrets",
    metadata,
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("ciphertext", LargeBinary, nullable=False),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
)
