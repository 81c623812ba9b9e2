-- Delete: forget jobs that are not running, and their ids. See sql/functions/0001_manage.sql for what holds.
select d.id from pgjq.delete_jobs(:queue::text, :ids::text::text[]) as d (id)
