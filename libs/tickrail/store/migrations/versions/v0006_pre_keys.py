"""Keys and tenants as they are made, rotated, suspended and counted.

Revision ID: 0006_pre
"""

from pathlib import Path

from alembic import op

revision = "0006_pre"
down_revision = "0005_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
