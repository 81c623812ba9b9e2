-- History as a user would write it for JDBC, with the numbers of both tables, so that both can be cut into ranges.
select
    q.name as queue, b.id,
    (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[d.state + 1] as state,
    -d.rank as priority, d.attempts, d.max_attempts, d.stalled, w.name as worker, b.created_at, d.started_at,
    d.finished_at, convert_from(b.payload, 'UTF8') as payload, convert_from(d.result, 'UTF8') as result, d.error,
    d.seq as done_seq, b.seq as body_seq
from pgjq.done as d
inner join pgjq.body as b on d.seq = b.seq and d.queue_id = b.queue_id
inner join pgjq.queue as q on d.queue_id = q.id
left join pgjq.worker as w on d.worker_id = w.id
