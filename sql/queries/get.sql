-- Get: everything known of jobs by their ids. One snapshot, so each is in exactly one of job and done.
--
-- A result or error whose time to live has passed is not shown, whether or not it has been pruned.
-- Index: body_id, then the primary keys.
select v.*
from pgjq.jobs as v
where v.queue_id = (select q.id from pgjq.queue as q where q.name = :queue)
    and v.id = any((select :ids::text[])::text[])
