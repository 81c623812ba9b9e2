-- Observe: count every queue's jobs, and notify subscribers of queues that have grown past warning_queue_size.
with crossed as materialized (
    select o.queue, o.count, o.size from pgjq.observe(:with_endings::boolean) as o
)

select
    c.queue, c.count, c.size,
    case when pgjq.watched()
            then pgjq.publish(array[pgjq.event('warning', c.queue, '', null, c.count)])
    end as published
from crossed as c
