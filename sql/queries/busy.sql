-- Busy: is there a job of this queue that could be claimed now, or that somebody is running?
--
-- Index: job_ready, its first entry; job_lease.
select
    q.id is not null and (
        (not q.paused and exists (select from pgjq.job as j where j.queue_id = q.id and j.ready))
        or exists (select from pgjq.job as j where j.queue_id = q.id and j.state = 1)
        or exists (
            select from pgjq.job as j
            where j.queue_id = q.id and not j.ready and not j.held and j.state <> 1 and j.run_at <= pgjq.now()
        )
    ) as busy
from (select 1) as one
left join pgjq.queue as q on q.name = :queue::text
