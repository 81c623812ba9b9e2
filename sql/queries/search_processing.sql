-- Search running jobs, the first deadline first, :limit after :mark (locked_until, seq). Index: job_lease, all of it.
select j.queue_id, j.seq, coalesce(j.locked_until, 'infinity') || '|' || j.seq as mark
from pgjq.job as j
where
    j.state = 1 and (:queue_id::integer is null or j.queue_id = :queue_id)
    and (coalesce(j.locked_until, 'infinity'), j.seq) > (
        coalesce(split_part(:mark::text, '|', 1)::timestamptz, '-infinity'),
        coalesce(split_part(:mark, '|', 2)::bigint, 0)
    )
order by coalesce(j.locked_until, 'infinity'), j.seq
limit :limit
