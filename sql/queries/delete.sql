-- Delete jobs that are not running, and free their ids. Guarantees: sql/functions/0001_delete.sql.
select d.id from pgjq.delete_jobs(:queue::text, :ids::text::text[]) as d (id)
