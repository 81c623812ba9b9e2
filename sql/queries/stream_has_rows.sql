-- Has any transaction from :since to before :until made a row of a :view?
--
-- Index: done_xid or job_event_xid.
select exists(
    select from pgjq.stream_row as d
    where
        d.view = :view::text and d.xid >= :since and d.xid < :until
        and (:queue::text is null or d.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
) as found
