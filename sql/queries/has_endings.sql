-- Has any transaction from :since to before :until ended a job?
--
-- Index: done_xid.
select exists(
    select from pgjq.done as d
    where
        d.xid >= :since and d.xid < :until
        and (:queue::text is null or d.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
) as found
