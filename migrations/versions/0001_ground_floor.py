"""The ground floor: tables, clock, notices, enqueueing, claiming, settling, the view of all jobs."""

from pgjq.migrate import create_schema, run_sql

revision = "pgjq_0001"
down_revision = None
branch_labels = ("pgjq",)
depends_on = None


def upgrade() -> None:
    """Create everything."""
    create_schema()
    for path in (
        "functions/0001_clock.sql",
        "schema/0001_tables.sql",
        "functions/0001_notify.sql",
        "functions/0001_answer.sql",
        "functions/0001_enqueue.sql",
        "functions/0001_turns.sql",
        "functions/0001_claim.sql",
        "functions/0001_manage.sql",
        "functions/0001_workers.sql",
        "functions/0001_bury.sql",
        "functions/0001_settle.sql",
        "functions/0001_reap.sql",
        "functions/0001_set_aside.sql",
        "functions/0001_queues.sql",
        "functions/0001_stage.sql",
        "views/0001_jobs.sql",
        "views/0001_monitoring.sql",
        "functions/0001_get.sql",
        "schema/0001_inspection.sql",
        "functions/0001_inspection.sql",
    ):
        run_sql(path)


def downgrade() -> None:
    """Remove everything."""
    run_sql("roles/revoke.sql")
    run_sql("schema/0001_down.sql")
