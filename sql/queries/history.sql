-- History: ended jobs, one row per ending, also of ids that have been enqueued again since. It reads numbers from
-- :first to before :last whose transactions are from :since to before :xmax, except those that were :running from :xmin
-- on. Rows :restored from another server's dump have transaction numbers that this server has not reached, and are
-- included. A reader that needs fewer columns selects from this statement.
--
-- Timestamps outside of the calendar are null. Results and errors are returned as long as the record exists.
-- Left joins let the planner drop a table when no column of it is selected.
-- Index: the primary keys of done and of body, in the same order.
select
    q.name as queue, b.id,
    (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[d.state + 1] as state,
    -d.rank as priority, d.attempts, d.max_attempts, d.stalled, w.name as worker,
    case when isfinite(b.created_at) then b.created_at end as created_at,
    case when isfinite(d.started_at) then d.started_at end as started_at,
    case when isfinite(d.finished_at) then d.finished_at end as finished_at,
    b.payload, d.result, d.error, d.seq, coalesce(p.stalled_on, '{}') as stalled_on, b.task,
    -- Only the runs that did not complete.
    (
        select
            json_agg(
                json_build_object(
                    'number', a.number, 'worker', a.worker, 'started_at', a.started_at, 'ended_at', a.ended_at,
                    'outcome', a.outcome, 'error', a.error::json
                ) order by a.number
            )::text
        from pgjq.attempt as a
        where a.seq = d.seq and a.queue_id = d.queue_id
    ) as runs,
    -- For readers that know the names already (names_of_numbers.sql).
    d.queue_id as queue_number, d.state as state_number, d.worker_id as worker_number
from pgjq.done as d
left join pgjq.body as b on d.seq = b.seq and d.queue_id = b.queue_id and b.seq >= :first and b.seq < :last
left join pgjq.queue as q on d.queue_id = q.id
left join pgjq.worker as w on d.worker_id = w.id
left join pgjq.progress as p on d.seq = p.seq and d.queue_id = p.queue_id and p.seq >= :first and p.seq < :last
where
    d.seq >= :first and d.seq < :last and d.xid >= :since
    and (
        d.xid < :xmax and (d.xid < :xmin or d.xid <> all(:running::bigint[]))
        or :restored and d.xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    )
