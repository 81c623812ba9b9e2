-- Search failing jobs, the next one first, :limit after :mark (run_at, seq); of other queues without a number.
--
-- Index: job_failing.
select
    case when :queue_id::integer is null or s.queue_id = :queue_id then s.queue_id end as queue_id, s.seq,
    s.run_at || '|' || s.seq as mark
from (
    select j.queue_id, j.seq, j.run_at from pgjq.job as j
    where
        j.state - 2 = 0
        and (j.run_at, j.seq) > (
            coalesce(split_part(:mark::text, '|', 1)::timestamptz, '-infinity'),
            coalesce(split_part(:mark, '|', 2)::bigint, 0)
        )
    order by j.run_at, j.seq
    limit :limit
) as s
