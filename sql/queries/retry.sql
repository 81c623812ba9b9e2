-- Retry: put a failed or cancelled job back in its own place, with all its attempts.
--
-- The lease goes on from where it was: a worker of an earlier life that wakes up late still holds an old number.
-- An id that is enqueued again at this moment is not put back as well: that marks the record as superseded, under the
-- lock that this waits for.
--
-- Index: body_id, then the primary key of done.
with revived as (
    delete from pgjq.done as d
    using pgjq.body as b, pgjq.queue as q
    where
        q.name = :queue and b.queue_id = q.id and b.id = :id and not b.superseded
        and d.seq = b.seq and d.queue_id = b.queue_id and d.state in (4, 5) and not d.superseded
    returning d.*, q.name as queue, b.id
),

forgiven as (
    update pgjq.progress as p
    set error = null, stalled_on = '{}'
    from revived as r
    where p.seq = r.seq and p.queue_id = r.queue_id
),

born as (
    insert into pgjq.job (
        queue_id, seq, lease, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key
    )
    select
        r.queue_id, r.seq, r.lease, pgjq.now(), true, r.rank, r.max_attempts,
        extract(epoch from r.expires_at - r.finished_at), r.delete_after, r.singleton_key
    from revived as r
)

select
    r.seq, pgjq.wake(r.queue) as woken,
    case when pgjq.watched() then pgjq.publish(array[pgjq.event('queued', r.queue, r.id, 0)]) end as published
from revived as r
