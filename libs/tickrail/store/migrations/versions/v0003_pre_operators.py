"""What operators do to the installation is in the audit log too.

Revision ID: 0003_pre
"""

from pathlib import Path

from alembic import op

revision = "0003_pre"
down_revision = "0002_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let entries be of no tenant."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
