-- Search a small queue: its jobs by id, :limit at the most. Index: body_id.
select b.queue_id, b.seq, b.seq::text as mark
from pgjq.body as b
where b.queue_id = :queue_id and not b.superseded
order by b.id
limit :limit
