-- The newest of the rows of a :view of transactions from :since to before :until, by which an offset is recognised on
-- another timeline.
--
-- Index: done_xid or job_event_xid.
select d.xid, d.n, extract(epoch from d.at)::text as at
from pgjq.stream_row as d
where d.view = :view::text and d.xid >= :since and d.xid < :until
order by d.xid desc, d.n desc
limit 1
