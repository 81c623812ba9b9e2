-- Unblock the key of an ended job, after a transaction whose snapshot may not have shown the blocked jobs.
select pgjq.pass_on(:queue_id::integer, :seq::bigint) as passed
