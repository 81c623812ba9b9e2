-- Search jobs that failed from :ended_after to :ended_before, the latest first, :limit before :mark (finished_at, seq);
-- of other queues without a number.
--
-- Index: done_failed, backwards.
select
    case when :queue_id::integer is null or s.queue_id = :queue_id then s.queue_id end as queue_id, s.seq,
    s.finished_at || '|' || s.seq as mark
from (
    select d.queue_id, d.seq, d.finished_at from pgjq.done as d
    where
        d.state - 4 = 0 and not d.superseded
        and d.finished_at >= coalesce(:ended_after::timestamptz, '-infinity')
        and d.finished_at < coalesce(:ended_before::timestamptz, 'infinity')
        and (d.finished_at, d.seq) < (
            coalesce(split_part(:mark::text, '|', 1)::timestamptz, 'infinity'),
            coalesce(split_part(:mark, '|', 2)::bigint, 0)
        )
    order by d.finished_at desc, d.seq desc
    limit :limit
) as s
