"""The next revision, as a release might have it: an index, a column and a function, while workers work."""

from pgjq.migrate import run_sql
from pgjq.online_migration import build_index

revision = "pgjq_0002"
down_revision = "pgjq_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index("schema/0002_job_worker.sql")
    run_sql("schema/0002_attention.sql")
    run_sql("functions/0002_claim.sql")


def downgrade() -> None:
    run_sql("schema/0002_down.sql")
