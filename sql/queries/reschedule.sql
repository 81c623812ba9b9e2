-- Reschedule: change when a waiting job may run, and its priority; return the job as it is then. Guarantees:
-- sql/functions/0001_release_and_reschedule.sql.
select r.* from pgjq.reschedule_job(:queue::text, :id::text, :run_at::timestamptz, :priority::smallint) as r
