-- Record queue stats: count every queue's jobs, and notify subscribers of queues that have grown past
-- warning_queue_size. Then record the minutes that have passed (sql/functions/0001_inspection.sql). One row for each
-- queue that has grown, and a last one without a queue.
with crossed as materialized (
    select r.queue, r.count, r.size from pgjq.record_queue_stats(:with_endings::boolean) as r
)

select
    c.queue, c.count, c.size,
    case when pgjq.has_subscribers()
            then pgjq.publish(array[pgjq.event('warning', c.queue, '', null, c.count)])
    end as published
from crossed as c
union all
select null, null, null, nullif(pgjq.record_minutes()::text, '')::bigint
