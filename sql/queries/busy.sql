-- Busy: is there a job of this queue that could be claimed now, or that somebody is running?
--
-- One pass over the live jobs of the queue at the worst, which is short when it is nearly drained.
select exists(
    select from pgjq.queue as q
    inner join pgjq.job as j on q.id = j.queue_id
    where
        q.name = :queue::text
        and (j.state = 1 or (not q.paused and (j.ready or (not j.held and j.run_at <= pgjq.now()))))
) as busy
