-- How that history ended: one in a hundred failed.
insert into pgjq.done
    (seq, finished_at, expires_at, started_at, delete_at, queue_id, lease, delete_after, rank, attempts, max_attempts,
    stalled, state, error)
select
    b.seq, b.created_at, now() + interval '1 day', b.created_at, null, b.queue_id, 1, 0, 0, 1, 3, 0,
    case when b.seq % 100 = 0 then 4 else 3 end,
    case when b.seq % 100 = 0 then '{"type": "ValueError", "message": "no", "traceback": "File \"a.py\", line 1, in f"}' end
from pgjq.body as b
where b.seq < 0
