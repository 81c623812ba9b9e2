-- Is this row of a :view there: with this number, by this transaction, at this time?
--
-- Index: the primary key of done or job_event.
select exists(
    select from pgjq.stream_row as d
    where
        d.view = :view::text and d.n = :n::bigint and d.xid = :xid::bigint
        and extract(epoch from d.at)::text = :at::text
) as found
