-- Search by age: the newest :limit jobs before :mark, of any state; those of other queues have no number.
--
-- Index: the primary key of body, backwards.
select
    case when :queue_id::integer is null or s.queue_id = :queue_id then s.queue_id end as queue_id, s.seq,
    s.seq::text as mark
from (
    select b.queue_id, b.seq from pgjq.body as b
    where b.seq < coalesce(:mark::text::bigint, 9223372036854775807)
    order by b.seq desc
    limit :limit
) as s
