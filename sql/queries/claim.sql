-- Claim: give up to :limit due jobs of one queue to one worker.
--
-- Guarantees
--   * No two callers get the same job: a row that another claim has locked is skipped, not waited for.
--   * Highest priority first, then the order of enqueueing.
--   * Each claim raises the job's lease. Whoever held it before can no longer end, extend or checkpoint it.
--   * At most :limit rows. The array is computed once; a plain IN (subquery) may be evaluated again and claim more.
--
-- Index: job_ready, walked from its head, and nothing else of a queue of a million is read. The row comparison with
-- an upper bound says the same as queue_id = …, but leaves the planner only one index with that order, whatever it
-- believes about how many jobs are ready. ctid is unique within a partition only, so the update names the queue as
-- well.
with picked as (
    update pgjq.job as j
    set
        state = 1, ready = false, lease = j.lease + 1, attempts = j.attempts + 1,
        worker_id = :worker, started_at = pgjq.now(),
        lease_seconds = coalesce((b.options ->> 'heartbeat_seconds')::real, :lease),
        expire_at = pgjq.now() + make_interval(
            secs => coalesce((b.options ->> 'expire_in_seconds')::double precision, :expire)
        ),
        locked_until = least(
            pgjq.now() + make_interval(
                secs => coalesce((b.options ->> 'heartbeat_seconds')::double precision, :lease)
            ),
            pgjq.now() + make_interval(
                secs => coalesce((b.options ->> 'expire_in_seconds')::double precision, :expire)
            )
        ),
        max_stalled = :max_stalled, requeue_exhausted = :requeue_exhausted
    from pgjq.body as b
    where
        j.queue_id = (select q.id from pgjq.queue as q where q.name = :queue)
        and b.seq = j.seq and b.queue_id = j.queue_id
        and j.ctid = any(array(
            select head.ctid from pgjq.job as head
            where
                head.ready
                and (head.queue_id, head.rank, head.seq)
                >= ((select q.id from pgjq.queue as q where q.name = :queue), (-32768)::smallint, 0::bigint)
                and head.queue_id <= (select q.id from pgjq.queue as q where q.name = :queue)
            order by head.queue_id, head.rank, head.seq
            limit :limit for update skip locked
        ))
    returning
        j.queue_id, j.seq, j.lease, j.rank, j.attempts, j.max_attempts, j.lease_seconds,
        extract(epoch from j.expire_at - j.started_at)::double precision as expire_seconds,
        b.id, b.payload, b.created_at, b.options
)

select
    p.queue_id, p.seq, p.lease, p.id, p.payload, p.attempts, p.max_attempts, p.created_at, p.lease_seconds,
    p.expire_seconds, progress.checkpoint, p.options,
    (
        select case when pgjq.watched() then (
                select pgjq.publish(array_agg(pgjq.event('processing', :queue, e.id, e.attempts))) from picked as e
            )
        end
    ) as published
from picked as p
left join pgjq.progress on p.seq = progress.seq and p.queue_id = progress.queue_id
order by p.rank, p.seq
