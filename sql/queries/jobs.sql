-- Jobs: all jobs that have not been superseded, live or ended, with their payloads; numbers from :first to before
-- :last.
--
-- Timestamps outside of the calendar are null.
-- Index: the primary keys, in the same order.
select
    v.queue, v.id, v.state, v.priority, v.attempts, v.max_attempts, v.stalled, v.worker,
    case when isfinite(v.created_at) then v.created_at end as created_at,
    case when isfinite(v.started_at) then v.started_at end as started_at,
    case when isfinite(v.finished_at) then v.finished_at end as finished_at,
    b.payload, v.result, v.error, v.seq, v.stalled_on, v.task,
    (
        select
            json_agg(
                json_build_object(
                    'number', a.number, 'worker', a.worker, 'started_at', a.started_at, 'ended_at', a.ended_at,
                    'outcome', a.outcome, 'error', a.error::json
                ) order by a.number
            )::text
        from pgjq.attempt as a
        where a.seq = v.seq and a.queue_id = v.queue_id
    ) as runs
from pgjq.jobs as v
left join pgjq.body as b on v.seq = b.seq and v.queue_id = b.queue_id
where v.seq >= :first and v.seq < :last
