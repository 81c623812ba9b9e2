-- The range of the numbers, and the count, of jobs that transactions from :since to before :until have ended.
--
-- Index: done_xid.
select min(d.seq) as first, max(d.seq) as last, count(*) as rows
from pgjq.done as d
where
    d.xid >= :since and d.xid < :until
    and (:queue::text is null or d.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
