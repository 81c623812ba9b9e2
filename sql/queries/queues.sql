-- Queues with their definitions: one, or all by name.
select
    q.name, q.id, q.paused, q.created_at, q.warning_queue_size, q.options, q.stats
from pgjq.queue as q
where :queue::text is null or q.name = :queue::text
order by q.name
