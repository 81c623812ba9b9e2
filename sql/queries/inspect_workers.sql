-- Inspect workers: live ones first, then those seen last, :limit at the most; as the view workers, for many of them.
--
-- Index: job_lease, for the jobs that they run. Registrations are read once: pruning keeps them few.
with registered as materialized (
    select
        r.worker_id, r.queues, r.started_at, r.last_seen,
        r.last_seen + make_interval(secs => 3 * r.heartbeat) > pgjq.now() as alive
    from pgjq.registration as r
    where r.last_seen + make_interval(secs => 3 * r.heartbeat) > pgjq.now() - interval '1 day'
),

shown as materialized (
    select r.worker_id, bool_or(r.alive) as alive, max(r.last_seen) as last_seen
    from registered as r
    group by r.worker_id
    order by bool_or(r.alive) desc, max(r.last_seen) desc
    limit :limit
),

running as materialized (
    select j.worker_id, count(*) as jobs from pgjq.job as j where j.state = 1 group by j.worker_id
)

select
    (select w.name from pgjq.worker as w where w.id = s.worker_id) as worker, array_agg(distinct q.name) as queues,
    min(r.started_at) as started_at, s.last_seen, coalesce(max(g.jobs), 0) as running, s.alive
from shown as s
inner join registered as r on s.worker_id = r.worker_id and s.alive = r.alive
left join running as g on s.worker_id = g.worker_id
cross join lateral unnest(r.queues) as q (name)
group by s.worker_id, s.last_seen, s.alive
order by s.alive desc, min(r.started_at) asc, worker asc
