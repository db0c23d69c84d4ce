"""Calendars, backfills, operations, skipped runs, intervals from completion, zone data.

Revision ID: 0002_pre
"""

from pathlib import Path

from alembic import op

revision = "0002_pre"
down_revision = "0001_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what the rules of time need."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
