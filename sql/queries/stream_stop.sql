-- The transaction number at which to stop for about :limit rows of a :view, of transactions from :since to before
-- :until: before the transaction that exceeds the limit, or after it if it is the first. Null if all are within the
-- limit.
--
-- Index: done_xid or job_event_xid.
select case when min(d.xid) < max(d.xid) then max(d.xid) else max(d.xid) + 1 end as cut
from (
    select past.xid from pgjq.stream_row as past
    where
        past.view = :view::text and past.xid >= :since and past.xid < :until
        and (:queue::text is null or past.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
    order by past.xid
    limit :limit::bigint + 1
) as d
having count(*) > :limit::bigint
