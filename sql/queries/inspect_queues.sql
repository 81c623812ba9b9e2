-- Inspect queues: the busiest by their last count, :limit of them, whose names contain :name; one queue by :queue.
--
-- Ready jobs are counted up to 100. Index: job_ready, for each queue from its head; job_lease.
with shown as (
    select q.id, q.name, q.paused, q.stats from pgjq.queue as q
    where
        (:queue::text is null or q.name = :queue) and (:name::text is null or strpos(lower(q.name), lower(:name)) > 0)
    order by
        coalesce((q.stats ->> 'ready')::bigint, 0) + coalesce((q.stats ->> 'failing')::bigint, 0) desc, q.name asc
    limit :limit
),

running as (
    select j.queue_id, count(*) as jobs from pgjq.job as j where j.state = 1 group by j.queue_id
)

select
    s.name, s.paused, coalesce(s.name in (select o.dead_letter from pgjq.queue as o), false) as takes_dead_letters,
    c.jobs as ready,
    extract(epoch from b.oldest_age)::double precision as oldest, coalesce(r.jobs, 0) as processing, s.stats
from shown as s
left join running as r on s.id = r.queue_id
left join pgjq.count_ready(array(select t.id from shown as t), 100) as c on s.id = c.queue_id
left join lateral (
    select (
        with recursive head as (
            (
                select j.rank, j.run_at from pgjq.job as j
                where j.ready and j.queue_id = s.id
                order by j.queue_id, j.rank, j.seq limit 1
            )
            union all
            select n.rank, n.run_at
            from head as h
            cross join lateral (
                select j.rank, j.run_at from pgjq.job as j
                where j.ready and j.queue_id = s.id and j.rank > h.rank
                order by j.queue_id, j.rank, j.seq limit 1
            ) as n
        )

        select pgjq.now() - min(h.run_at) from head as h
    ) as oldest_age
) as b on true
order by s.name
