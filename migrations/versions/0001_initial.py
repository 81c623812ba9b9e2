"""The first schema: tables, functions and views."""

from pgjq.migrate import create_schema, run_sql

revision = "pgjq_0001"
down_revision = None
branch_labels = ("pgjq",)
depends_on = None

# In the order of their dependencies: a function in plain SQL needs what it calls, a view what it reads.
FILES = (
    "functions/0001_clock.sql",
    "schema/0001_policies.sql",
    "schema/0001_queues.sql",
    "schema/0001_jobs.sql",
    "schema/0001_reservations_slots_and_bulk_writes.sql",
    "schema/0001_schedules.sql",
    "schema/0001_job_events.sql",
    "functions/0001_wake.sql",
    "functions/0001_publish_events.sql",
    "functions/0001_waiters.sql",
    "functions/0001_queue_locks.sql",
    "functions/0001_option_bounds.sql",
    "functions/0001_job_defaults.sql",
    "functions/0001_ids.sql",
    "functions/0001_time_slots.sql",
    "functions/0001_add_jobs.sql",
    "functions/0001_add_limited_job.sql",
    "functions/0001_reservations.sql",
    "functions/0001_enqueue_jobs.sql",
    "functions/0001_enqueue.sql",
    "functions/0001_claim.sql",
    "functions/0001_peek.sql",
    "functions/0001_pick_serial.sql",
    "functions/0001_unblock.sql",
    "functions/0001_end_jobs.sql",
    "functions/0001_policy_slots.sql",
    "functions/0001_attempts.sql",
    "functions/0001_settle.sql",
    "functions/0001_checkpoints.sql",
    "functions/0001_reap.sql",
    "functions/0001_dead_letters.sql",
    "functions/0001_invalid_jobs.sql",
    "functions/0001_cancel.sql",
    "functions/0001_delete.sql",
    "functions/0001_prune.sql",
    "functions/0001_workers.sql",
    "functions/0001_partitions.sql",
    "functions/0001_queues.sql",
    "functions/0001_queue_stats.sql",
    "functions/0001_stages.sql",
    "functions/0001_bulk_bodies.sql",
    "functions/0001_bulk_writes.sql",
    "functions/0001_enqueue_staged.sql",
    "functions/0001_record_events.sql",
    "functions/0001_schedules.sql",
    "functions/0001_schedule_ticks.sql",
    "views/0001_jobs.sql",
    "views/0001_queue_activity.sql",
    "views/0001_live_jobs.sql",
    "views/0001_attempts.sql",
    "views/0001_workers.sql",
    "views/0001_server.sql",
    "views/0001_schedules.sql",
    "views/0001_stream.sql",
    "functions/0001_get.sql",
    "functions/0001_retry.sql",
    "functions/0001_release_and_reschedule.sql",
    "schema/0001_inspection.sql",
    "functions/0001_inspection.sql",
    "schema/0001_totals.sql",
    "functions/0001_totals.sql",
    "functions/0001_planner_settings.sql",
)


def upgrade() -> None:
    """Create everything."""
    create_schema()
    for path in FILES:
        run_sql(path)


def downgrade() -> None:
    """Remove everything."""
    run_sql("roles/revoke.sql")
    run_sql("schema/0001_down.sql")
