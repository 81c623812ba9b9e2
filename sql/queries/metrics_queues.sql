-- Metrics: each queue's jobs by state, age of the oldest ready job, and live workers; queues in the order of creation.
--
-- Live jobs are counted in one pass, unless workers counted more than :most of them within a minute; endings unless
-- workers ever counted more than :most. Then it is the last count. Index: none.
with known as materialized (
    select
        q.id, q.name, coalesce(q.stats, '{}') as stats,
        coalesce(
            sum(
                (q.stats ->> 'ready')::bigint + (q.stats ->> 'deferred')::bigint + (q.stats ->> 'failing')::bigint
            ) over () > :most
            and max((q.stats ->> 'counted_at')::timestamptz) over () > pgjq.now() - interval '1 minute', false
        ) as has_many_live,
        coalesce(
            sum(
                (q.stats ->> 'completed')::bigint + (q.stats ->> 'failed')::bigint + (q.stats ->> 'cancelled')::bigint
            ) over () > :most, false
        ) as has_many_ended
    from pgjq.queue as q
),

live as materialized (
    select
        j.queue_id, count(*) filter (where j.state = 0) as queued, count(*) filter (where j.state = 1) as processing,
        count(*) filter (where j.state = 2) as failing,
        extract(epoch from pgjq.now() - min(j.run_at) filter (where j.state <> 1 and j.run_at <= pgjq.now())) as oldest
    from pgjq.job as j
    where not exists (select from known as k where k.has_many_live)
    group by j.queue_id
    union all
    select
        k.id, (k.stats ->> 'ready')::bigint + (k.stats ->> 'deferred')::bigint, (k.stats ->> 'processing')::bigint,
        (k.stats ->> 'failing')::bigint, (k.stats ->> 'oldest_ready_age')::numeric
    from known as k
    where k.has_many_live
),

ended as materialized (
    select
        d.queue_id, count(*) filter (where d.state = 3) as completed, count(*) filter (where d.state = 4) as failed,
        count(*) filter (where d.state = 5) as cancelled
    from pgjq.done as d
    where not d.superseded and not exists (select from known as k where k.has_many_ended)
    group by d.queue_id
    union all
    select
        k.id, (k.stats ->> 'completed')::bigint, (k.stats ->> 'failed')::bigint, (k.stats ->> 'cancelled')::bigint
    from known as k
    where k.has_many_ended
),

serving as (
    select n.name, count(distinct r.worker_id) as workers
    from pgjq.registration as r
    cross join lateral unnest(r.queues) as n (name)
    where r.last_seen + make_interval(secs => 3 * r.heartbeat) > pgjq.now()
    group by n.name
)

select
    k.name, coalesce(l.queued, 0) as queued, coalesce(l.processing, 0) as processing, coalesce(l.failing, 0) as failing,
    coalesce(e.completed, 0) as completed, coalesce(e.failed, 0) as failed, coalesce(e.cancelled, 0) as cancelled,
    coalesce(l.oldest, 0)::double precision as oldest, coalesce(s.workers, 0) as workers
from known as k
left join live as l on k.id = l.queue_id
left join ended as e on k.id = e.queue_id
left join serving as s on k.name = s.name
order by k.id
