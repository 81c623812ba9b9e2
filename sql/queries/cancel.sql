-- Cancel jobs that are not running: their records stay as cancelled, their ids are free at once. Guarantees:
-- sql/functions/0001_cancel.sql.
select c.id from pgjq.cancel_jobs(:queue::text, :ids::text::text[]) as c (id)
