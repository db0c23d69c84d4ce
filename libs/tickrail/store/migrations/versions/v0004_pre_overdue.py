"""The API can tell how late the tick is, also when no scheduler runs.

Revision ID: 0004_pre
"""

from pathlib import Path

from alembic import op

revision = "0004_pre"
down_revision = "0003_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the function."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
