"""Work: limits and who holds them, workers, logs of runs, undecodable messages, tenants' shares.

Revision ID: 0005_pre
"""

from pathlib import Path

from alembic import op

revision = "0005_pre"
down_revision = "0004_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
