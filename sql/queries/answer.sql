-- Answer: how one job stands, found by its number, so that an id that is another job by now does not matter.
--
-- One snapshot, so it is in exactly one of done and job, or gone. A result or error whose time has passed is not shown.
-- Index: the primary keys.
select
    d.state, d.attempts, d.max_attempts,
    case when d.expires_at > pgjq.now() then d.result end as result,
    case when d.expires_at > pgjq.now() then d.error end as error,
    d.expires_at <= pgjq.now() as expired
from pgjq.done as d
where d.seq = :seq and d.queue_id = (select q.id from pgjq.queue as q where q.name = :queue)
union all
select j.state, j.attempts, j.max_attempts, null as result, null as error, false as expired
from pgjq.job as j
where j.seq = :seq and j.queue_id = (select q.id from pgjq.queue as q where q.name = :queue)
