-- The range of the numbers of rows of a :view that transactions from :since to before :until have made, and the numbers
-- at which it is cut into :wanted parts of about as many rows, by default one per :per_part rows.
--
-- Index: done_xid or job_event_xid.
with ended as materialized (
    select d.n from pgjq.stream_row as d
    where
        d.view = :view::text and d.xid >= :since and d.xid < :until
        and (:queue::text is null or d.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
),

counted as (
    select
        min(e.n) as first, max(e.n) as last,
        coalesce(:wanted::bigint, least(:most::bigint, ceil(count(*) / :per_part::float8)::bigint)) as parts
    from ended as e
)

select
    c.first, c.last,
    (
        select
            percentile_disc(array(select n / c.parts::float8 from generate_series(1, c.parts - 1) as s (n)))
            within group (order by e.n)
        from ended as e
    ) as cuts
from counted as c
