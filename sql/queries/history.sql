-- History: jobs that have ended, one row an ending, also of ids that have been enqueued again since. Those with numbers
-- from :first to before :last whose transactions are :since one and before :xmax, but for those that were :running from
-- :xmin on; what was :restored from another server's dump has numbers that nobody here has got to, and is history too.
-- Whoever needs fewer columns selects from this.
--
-- Points in time that no calendar has are null. Results and errors are shown for as long as the record is there.
-- Joined from the left, so that the planner leaves out a table when none of its columns is wanted.
-- Index: the primary keys of done and of body, in the same order.
select
    q.name as queue, b.id,
    (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[d.state + 1] as state,
    -d.rank as priority, d.attempts, d.max_attempts, d.stalled, w.name as worker,
    case when isfinite(b.created_at) then b.created_at end as created_at,
    case when isfinite(d.started_at) then d.started_at end as started_at,
    case when isfinite(d.finished_at) then d.finished_at end as finished_at,
    b.payload, d.result, d.error, d.seq, coalesce(p.stalled_on, '{}') as stalled_on,
    -- For those who know the names already (names.sql): three numbers in one, which cost less to send than each by
    -- itself. The last two are never below 0, and nobody is worker 0.
    (d.queue_id::bigint * 65536 + d.state) * 65536 + d.stalled as place,
    (coalesce(d.worker_id, 0)::bigint * 65536 + d.attempts) * 65536 + d.max_attempts as effort
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
