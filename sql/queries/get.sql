-- Get: the full status of jobs by id. One snapshot, so each job is in exactly one of job and done.
--
-- A result or error whose time to live has passed is not returned, whether or not it has been pruned.
-- Index: body_id, then the primary keys. The statement is in sql/functions/0001_get.sql.
select g.* from pgjq.get_jobs(:queue::text, :ids::text[]) as g
