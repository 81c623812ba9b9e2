-- Search jobs that ended from :ended_after to :ended_before, the latest first, :limit before :mark (finished_at, seq).
--
-- Reads 20,000 endings of that time at most, in no order, so that a busy minute costs no more than a quiet one.
-- Index: done_finished.
select s.queue_id, s.seq, s.finished_at || '|' || s.seq as mark
from (
    select d.queue_id, d.seq, d.finished_at from pgjq.done as d
    where
        not d.superseded
        and d.finished_at >= coalesce(:ended_after::timestamptz, '-infinity')
        and d.finished_at < coalesce(:ended_before::timestamptz, 'infinity')
        and (:queue_id::integer is null or d.queue_id = :queue_id)
    limit 20000 -- noqa: AM09
) as s
where
    (s.finished_at, s.seq) < (
        coalesce(split_part(:mark::text, '|', 1)::timestamptz, 'infinity'),
        coalesce(split_part(:mark, '|', 2)::bigint, 0)
    )
order by s.finished_at desc, s.seq desc
limit :limit
