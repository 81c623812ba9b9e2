-- Retry many: requeue failed or cancelled jobs in their own places, with all their attempts; return what happened to
-- each. Guarantees: sql/functions/0001_retry.sql.
select r.id, r.became from pgjq.retry_jobs(:queue::text, :ids::text::text[]) as r
