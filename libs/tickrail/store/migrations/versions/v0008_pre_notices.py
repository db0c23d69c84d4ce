"""Notices of launches that were given up, and who gets them.

Revision ID: 0008_pre
"""

from pathlib import Path

from alembic import op

revision = "0008_pre"
down_revision = "0007_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
