"""What a crowd leaves behind is not read by who looks for deadlines or for what is due longest.

Revision ID: 0019_pre
"""

from pathlib import Path

from alembic import op

revision = "0019_pre"
down_revision = "0018_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace a function, and add an index day by day."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
