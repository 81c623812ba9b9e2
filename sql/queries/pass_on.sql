-- Say that an ended job's key is free, after a transaction that may not have seen who waits for it.
select pgjq.pass_on(:queue_id::integer, :seq::bigint) as passed
