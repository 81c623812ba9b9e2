-- Warn: notify subscribers of a job that a worker has put back, because it cannot run the job's task.
select pgjq.publish(array[w.event]) as published
from (
    select
        pgjq.event('warning', :queue::text, :id::text, null, :count::integer, null, :reason::text, :task::text)
            as event
) as w
where pgjq.has_subscribers()
