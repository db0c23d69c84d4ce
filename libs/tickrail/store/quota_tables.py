"""The tables of quotas: what a tenant may have, and what is used of it.

As in `tables`: the migrations make the schema, row security adds the tenant to every statement.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from tickrail.store.schema import INSTANT, NAME, metadata
from tickrail.store.tenant_tables import tenants

quotas = Table(
    "quotas",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("quota", NAME, primary_key=True),
    Column("amount", Double),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
)
Index(
    "quotas_launches",
    quotas.c.tenant_id,
    postgresql_where=text(
        "(quota = ANY (ARRAY['launches_per_minute'::text, 'launches_per_day'::text]))"
    ),
)
quota_windows = Table(
    "quota_windows",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("quota", NAME, primary_key=True),
    Column("starts_at", INSTANT, primary_key=True),
    Column("used", BigInteger, nullable=False, server_default=text("0")),
    Column("told", SmallInteger, nullable=False, server_default=text("0")),
)
Index("quota_windows_age", quota_windows.c.starts_at)
request_buckets = Table(
    "request_buckets",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("key_id", NAME, primary_key=True),
    Column("tokens", Double, nullable=False),
    Column("filled_at", INSTANT, nullable=False),
)
quota_channels = Table(
    "quota_channels",
    metadata,
    Column("tenant_id", Uuid, ForeignKey(tenants.c.id), primary_key=True),
    Column("channels", ARRAY(Text), nullable=False),
    Column("updated_at", INSTANT, nullable=False, server_default=text("now()")),
)
