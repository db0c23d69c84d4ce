"""Whose jobs are due at one instant is found without reading all of them.

Revision ID: 0017_pre
"""

from pathlib import Path

from alembic import op

revision = "0017_pre"
down_revision = "0016_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index anew."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
