-- Inspect minutes: statistics of the last minutes, of one queue or the sums of all. Index: the primary key of minute.
select
    m.at, sum(m.completed) as completed, sum(m.failed) as failed, sum(m.cancelled) as cancelled,
    sum(m.waited * (m.completed + m.failed + m.cancelled))
    / nullif(sum(m.completed + m.failed + m.cancelled) filter (where m.waited is not null), 0) as waited,
    sum(m.ran * (m.completed + m.failed + m.cancelled))
    / nullif(sum(m.completed + m.failed + m.cancelled) filter (where m.ran is not null), 0) as ran,
    sum(m.ready) as ready, max(m.oldest) as oldest
from pgjq.minute as m
where
    m.at >= pgjq.now() - make_interval(mins => :minutes)
    and (:queue::text is null or m.queue_id = (select q.id from pgjq.queue as q where q.name = :queue))
group by m.at
order by m.at
