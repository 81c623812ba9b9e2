-- Enqueue one job whose id is probably free; return its number, or null if nothing was done.
-- Guarantees: sql/functions/0001_enqueue_jobs.sql.
select pgjq.enqueue_job(:queue::text, :id::text, :payload::bytea, :settings::text::jsonb) as seq
