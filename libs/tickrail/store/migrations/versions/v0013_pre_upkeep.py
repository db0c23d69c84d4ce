"""Old records are found by their age; a deleted tenant gives its name away.

Revision ID: 0013_pre
"""

from pathlib import Path

from alembic import op

revision = "0013_pre"
down_revision = "0011_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes and rights."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
