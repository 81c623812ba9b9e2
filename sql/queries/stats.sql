-- Stats: the number of jobs of a queue by state, in one snapshot. Superseded records are history and not counted.
with here as (select q.id from pgjq.queue as q where q.name = :queue),

live as (
    select
        count(*) filter (where j.state = 0 and j.run_at > pgjq.now()) as deferred,
        count(*) filter (where j.state = 0 and j.run_at <= pgjq.now()) as ready,
        count(*) filter (where j.state = 1) as processing,
        count(*) filter (where j.state = 2) as failing,
        extract(epoch from pgjq.now() - min(j.run_at) filter (where j.state <> 1 and j.run_at <= pgjq.now()))
        ::double precision as oldest_ready_age
    from pgjq.job as j
    where j.queue_id = (select here.id from here)
),

ended as (
    select
        count(*) filter (where d.state = 3) as completed,
        count(*) filter (where d.state = 4) as failed,
        count(*) filter (where d.state = 5) as cancelled
    from pgjq.done as d
    where d.queue_id = (select here.id from here) and not d.superseded
)

select
    l.deferred, l.ready, l.processing, l.failing, e.completed, e.failed, e.cancelled, l.oldest_ready_age
from live as l cross join ended as e
