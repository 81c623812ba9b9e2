-- Inspect totals: how many queues there are, and the sum of their last counts.
select
    count(*) as queues, sum((q.stats ->> 'ready')::bigint) as ready, sum((q.stats ->> 'deferred')::bigint) as deferred,
    sum((q.stats ->> 'failing')::bigint) as failing, sum((q.stats ->> 'failed')::bigint) as failed,
    sum((q.stats ->> 'completed')::bigint) as completed, (
        select count(*) from (select from pgjq.job as j where j.state = 1 order by j.locked_until limit 10001) as few
    ) as processing
from pgjq.queue as q
