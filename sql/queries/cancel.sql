-- Cancel a job that is not running: its record stays as cancelled, its id is free at once.
--
-- Races with a claim are settled by the lock of the job's row: if the claim was first, the state is checked again after
-- the wait, nothing matches, nothing comes back, and the caller looks at what the job has become.
-- Index: body_id, then the primary key.
with withdrawn as (
    delete from pgjq.job as j
    using pgjq.body as b, pgjq.queue as q
    where
        q.name = :queue and b.queue_id = q.id and b.id = :id and not b.superseded
        and j.seq = b.seq and j.queue_id = b.queue_id and j.state <> 1
    returning j.*, q.name as queue, b.id
),

history as (
    insert into pgjq.done (
        queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank, attempts,
        max_attempts, stalled, singleton_key, state
    )
    select
        w.queue_id, w.seq, w.lease, w.started_at, pgjq.now(), pgjq.now() + make_interval(secs => w.result_ttl),
        case when w.delete_after > 0 then pgjq.now() + make_interval(secs => w.delete_after) end, w.worker_id,
        w.delete_after, w.rank, w.attempts, w.max_attempts, w.stalled, w.singleton_key, 5
    from withdrawn as w
)

select
    w.seq,
    case when pgjq.watched() then pgjq.publish(array[pgjq.event('cancelled', w.queue, w.id, w.attempts)]) end
        as published,
    case when w.awaited then pgjq.answer(array[pgjq.ending(w.queue, w.id, 'cancelled')]) end as answered
from withdrawn as w
