-- Has work: is a job of this queue running, or ready to be claimed?
--
-- At worst one pass over the live jobs of the queue, which are few when it is nearly drained.
select exists(
    select from pgjq.queue as q
    inner join pgjq.job as j on q.id = j.queue_id
    where
        q.name = :queue::text
        and (j.state = 1 or (not q.paused and (j.ready or (not j.blocked and j.run_at <= pgjq.now()))))
) as has_work
