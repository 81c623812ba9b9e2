-- Doctor: tasks whose jobs workers put back without a run that counts, and that wait for the next claim.
--
-- Every claim raises the lease, and every run that counts raises the attempts. Index: job_waiting, from now to the
-- longest delay of such jobs.
with waiting as (
    select j.seq, j.queue_id, j.lease, j.attempts from pgjq.job as j
    where
        not j.ready and not j.blocked and j.state <> 1
        and j.run_at > pgjq.now() and j.run_at <= pgjq.now() + interval '5 minutes'
    order by j.run_at
    limit 10000
)

select
    q.name as queue, b.task, count(*) as jobs, max(w.lease - w.attempts) as times, min(b.id) as example
from waiting as w
inner join pgjq.body as b on w.seq = b.seq and w.queue_id = b.queue_id
inner join pgjq.queue as q on w.queue_id = q.id
where w.lease - w.attempts >= 1 and b.task is not null
group by q.name, b.task
order by jobs desc
limit :limit
