"""The channels of a tenant that are told of its quotas.

Revision ID: 0011_pre
"""

from pathlib import Path

from alembic import op

revision = "0011_pre"
down_revision = "0010_pre"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the functions."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.get_bind().connection.cursor().execute(sql)
