-- Search live jobs by age: the newest :limit before :mark; those of other queues have no number.
--
-- Index: the primary key of job, backwards.
select
    case when :queue_id::integer is null or s.queue_id = :queue_id then s.queue_id end as queue_id, s.seq,
    s.seq::text as mark
from (
    select j.queue_id, j.seq from pgjq.job as j
    where j.seq < coalesce(:mark::text::bigint, 9223372036854775807)
    order by j.seq desc
    limit :limit
) as s
