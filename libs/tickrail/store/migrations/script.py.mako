"""${message}.

Revision ID: ${up_revision}
Revises: ${down_revision}

`pre` is safe while the last release runs, `post` once this one runs everywhere.
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """${message}."""
    op.execute("set local lock_timeout = '2s'")
