"""${message}"""

from pgjq.migrate import run_sql

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the SQL of this revision."""
    run_sql("schema/NNNN_name.sql")


def downgrade() -> None:
    """Undo it."""
    run_sql("schema/NNNN_down.sql")
