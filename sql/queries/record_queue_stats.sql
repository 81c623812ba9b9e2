-- Record queue stats: count every queue's jobs, and notify subscribers of queues that have grown past
-- warning_queue_size.
with crossed as materialized (
    select r.queue, r.count, r.size from pgjq.record_queue_stats(:with_endings::boolean) as r
)

select
    c.queue, c.count, c.size,
    case when pgjq.has_subscribers()
            then pgjq.publish(array[pgjq.event('warning', c.queue, '', null, c.count)])
    end as published
from crossed as c
