-- Where to stop when about :limit endings are wanted, of transactions from :since to before :until: before the
-- transaction that would be too many, or after it if it is the first. Nothing if all of them are few enough.
--
-- Index: done_xid.
select case when min(d.xid) < max(d.xid) then max(d.xid) else max(d.xid) + 1 end as cut
from (
    select past.xid from pgjq.done as past
    where
        past.xid >= :since and past.xid < :until
        and (:queue::text is null or past.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
    order by past.xid
    limit :limit::bigint + 1
) as d
having count(*) > :limit::bigint
