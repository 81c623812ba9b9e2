-- Retry many: put failed or cancelled jobs back in their own places, with all their attempts; say what became of each.
-- See sql/functions/0001_manage.sql for what holds.
select r.id, r.became from pgjq.retry_jobs(:queue::text, :ids::text::text[]) as r
