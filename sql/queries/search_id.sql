-- Search by id: the job of this id in each queue. Index: body_id, one probe for each queue.
select b.queue_id, b.seq, b.seq::text as mark
from pgjq.body as b
where
    b.id = :id and not b.superseded
    and b.queue_id in (select q.id from pgjq.queue as q where :queue_id::integer is null or q.id = :queue_id)
order by b.seq desc
limit :limit
