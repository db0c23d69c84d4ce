"""A day of the history is made and dropped so that nobody waits for it.

Revision ID: 0016_pre
"""

from pathlib import Path

from alembic import op

revision = "0016_pre"
down_revision = "0015_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the functions anew."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
