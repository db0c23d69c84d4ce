"""How far behind the work of each queue is; which programs may run on a schema.

Revision ID: 0010_pre
"""

from pathlib import Path

from alembic import op

revision = "0010_pre"
down_revision = "0009_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the function and the column."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
