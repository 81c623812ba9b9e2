-- Unblock the key of an ended job, after a transaction whose snapshot may not have shown the blocked jobs.
select pgjq.unblock_key_of_job(:queue_id::integer, :seq::bigint) as unblocked
