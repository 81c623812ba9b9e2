-- All jobs that have not been superseded, live or ended, one row each: the view behind get and find, and for operators.
create view pgjq.jobs as
select
    b.seq, b.queue_id, q.name as queue, b.id,
    (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[coalesce(j.state, d.state) + 1]
        as state,
    b.created_at,
    coalesce(j.attempts, d.attempts) as attempts,
    coalesce(j.max_attempts, d.max_attempts) as max_attempts,
    -coalesce(j.rank, d.rank) as priority, j.run_at, coalesce(j.started_at, d.started_at) as started_at, d.finished_at,
    j.locked_until, w.name as worker, coalesce(j.lease, d.lease) as lease, coalesce(j.stalled, d.stalled) as stalled,
    coalesce(j.singleton_key, d.singleton_key) as singleton_key,
    case when d.expires_at > pgjq.now() then d.result end as result,
    case when j.seq is not null then p.error when d.expires_at > pgjq.now() then d.error end as error,
    coalesce(p.stalled_on, '{}') as stalled_on, b.source, b.task, b.headers
from pgjq.body as b
inner join pgjq.queue as q on b.queue_id = q.id
left join pgjq.job as j on b.seq = j.seq and b.queue_id = j.queue_id
left join pgjq.done as d on b.seq = d.seq and b.queue_id = d.queue_id
left join pgjq.progress as p on b.seq = p.seq and b.queue_id = p.queue_id
left join pgjq.worker as w on coalesce(j.worker_id, d.worker_id) = w.id
where not b.superseded and (j.seq is not null or d.seq is not null);
