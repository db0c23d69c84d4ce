"""The first schema: tables, roles, row security, day partitions.

Revision ID: 0001_pre
"""

from pathlib import Path

from alembic import op

revision = "0001_pre"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
