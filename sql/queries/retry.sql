-- Retry: requeue a failed or cancelled job in its own place, with all its attempts; return the job as it is then, and
-- what happened. Guarantees: sql/functions/0001_retry.sql.
select (r.job).*, r.became from pgjq.retry_job(:queue::text, :id::text) as r
