-- Retry: put a failed or cancelled job back in its own place, with all its attempts; answer with the job as it is then,
-- and what became of it. See sql/functions/0001_get.sql and 0001_manage.sql for what holds.
select (r.job).*, r.became from pgjq.retry_job(:queue::text, :id::text) as r
