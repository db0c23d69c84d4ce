"""What the API sends with a commit, and how crowded an instant is, by calls that cost less.

Revision ID: 0018_pre
"""

from pathlib import Path

from alembic import op

revision = "0018_pre"
down_revision = "0017_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add one function, and replace the other."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
