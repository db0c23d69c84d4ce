"""The audit trail's age, deleted jobs' end, lists of many jobs.

Revision ID: 0009_pre
"""

from pathlib import Path

from alembic import op

revision = "0009_pre"
down_revision = "0008_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
