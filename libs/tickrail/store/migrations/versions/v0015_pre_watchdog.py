"""When a job must have succeeded at the latest; the trace that a launch belongs to.

Revision ID: 0015_pre
"""

from pathlib import Path

from alembic import op

revision = "0015_pre"
down_revision = "0014_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the index."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
