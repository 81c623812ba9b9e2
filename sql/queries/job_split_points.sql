-- The numbers at which ended jobs or, with :alive, all jobs are cut into :wanted parts of about as many rows, by
-- default one per :per_part rows. It looks at :percent percent of the table's pages: of a large table, a part.
--
-- Index: none.
with sample as materialized (
    select d.seq from pgjq.done as d tablesample system (:percent::real)  -- noqa: PRS
    where
        not :alive
        and (:queue::text is null or d.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
    union all
    select b.seq from pgjq.body as b tablesample system (:percent::real)  -- noqa: PRS
    where
        :alive and (:queue::text is null or b.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
),

counted as (
    select
        coalesce(
            :wanted::bigint, least(:most::bigint, ceil(count(*) * 100 / :percent::float8 / :per_part::float8)::bigint)
        ) as parts
    from sample
)

select
    (
        select
            percentile_disc(array(select n / c.parts::float8 from generate_series(1, c.parts - 1) as g (n)))
            within group (order by s.seq)
        from sample as s
    ) as cuts
from counted as c
