"""What the API asks at the beginning of a transaction, asked by one call.

Revision ID: 0014_pre
"""

from pathlib import Path

from alembic import op

revision = "0014_pre"
down_revision = "0013_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the functions."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
