-- Events: recorded state changes with the numbers from :first to before :last, of transactions from :since to before
-- :xmax, except those that were :running from :xmin on. With :restored, also those of another server's dump.
--
-- Names are null if the job's record was deleted since.
-- Index: the primary keys.
select
    q.name as queue, b.id, b.task, e.name as event,
    (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[e.state + 1] as state,
    e.attempts::integer as attempts, e.run, w.name as worker, e.at, a.outcome, coalesce(a.error, d.error) as error,
    e.seq, e.n
from pgjq.job_event as e
left join pgjq.body as b on e.seq = b.seq and e.queue_id = b.queue_id
left join pgjq.queue as q on e.queue_id = q.id
left join pgjq.worker as w on e.worker_id = w.id
-- How the run ended that this event ends.
left join pgjq.attempt as a
    on e.seq = a.seq and e.queue_id = a.queue_id and e.run = a.number and e.name not in ('queued', 'started')
left join pgjq.done as d on e.seq = d.seq and e.queue_id = d.queue_id and e.name = 'ended'
where
    e.n >= :first and e.n < :last and e.xid >= :since
    and (
        e.xid < :xmax and (e.xid < :xmin or e.xid <> all(:running::bigint[]))
        or :restored and e.xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    )
