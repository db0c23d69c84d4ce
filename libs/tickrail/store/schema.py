"""What the descriptions of all tables share."""

from __future__ import annotations

from sqlalchemy import DateTime, MetaData, Text

metadata = MetaData()

INSTANT = DateTime(timezone=True)
NAME = Text(collation="C")
