-- Search blocked jobs of a queue by key, :limit at the most. Index: job_key_due.
select j.queue_id, j.seq, j.seq::text as mark
from pgjq.job as j
where
    j.queue_id = :queue_id and j.blocked and pgjq.is_serial(j.queue_id) and j.seq > coalesce(:mark::text::bigint, 0)
order by j.seq
limit :limit
